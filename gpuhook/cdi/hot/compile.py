# SPDX-License-Identifier: Apache-2.0
"""The compiler of CDI spec files; the fault of a broken spec is compiled as well.

JSON sources are parsed here. A YAML source needs the parser of the cold code, which the caller
passes.
"""

from __future__ import annotations

from os.path import isfile

from gpuhook.cdi.hot import compiled_spec, spec_rules
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import fastjson, files

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Any

    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.cdi.hot.container_edits import Spec

    Parser = Callable[[bytes, str], Any]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Escapes that YAML does not have: of halves of a character, and of a slash.
_ONLY_JSON = (
    "\\ud8", "\\ud9", "\\uda", "\\udb", "\\udc", "\\udd", "\\ude", "\\udf", "\\/",
)  # fmt: skip
_MAX_SIZE = 8 << 20  # bytes: a spec of 16 GPUs with 7 MIG instances each has 0.5 MB


def compile_json(path: str, found: os.stat_result) -> Compiled:
    """Compile and store the JSON spec at `path`; `found` is its stat from before it is read."""
    return compile_with(parse_json, path, found)


def compile_with(parse: Parser, path: str, found: os.stat_result) -> Compiled:
    """Compile and store the spec at `path`; `parse(data, path)` returns the value of its text.

    A file that changed since `found` is stored under the old key, which never matches again. The
    fault of an unreadable file is not stored: nothing in the file's identity would change.
    """
    try:
        spec = checked(parse, path)
    except OSError as error:
        return compiled_spec.Compiled.unreadable(path, error)
    except GpuhookError as error:
        return compiled_spec.store(path, found, error)
    return compiled_spec.store(path, found, spec)


def checked(parse: Parser, path: str) -> Spec:
    """Return the valid spec at `path`, absent parts left out; raises OSError and GH11 faults."""
    document = parse(_content(path), path)
    spec_rules.check(document, path)
    spec: Spec = _without_nulls(document)
    return spec


def _content(path: str) -> bytes:
    """Return the bytes of a spec file; raises OSError, GH1316 if too large, GH1310 for no file."""
    try:
        return files.read(path, _MAX_SIZE)
    except GpuhookError:
        if isfile(path):
            raise fault("GH1316", path=path, limit=_MAX_SIZE >> 20) from None
        raise


def parse_json(data: bytes, path: str) -> Any:
    """Return the value of a JSON text; GH1109 has the position of an error."""
    repeated: list[str] = []
    data = data.removeprefix(_BYTE_ORDER_MARK)
    try:
        found = fastjson.loads(data, repeated=repeated)
    except ValueError as error:
        raise fault("GH1109", path=path, place="JSON", reason=error) from error
    reason = f"the key {repeated[0]!r} occurs twice" if repeated else _not_yaml(data)
    if reason:
        raise fault("GH1109", path=path, place="JSON", reason=reason)
    return found


def _not_yaml(data: bytes) -> str:
    """Return where and why a JSON text is not YAML, "" if it is: engines read a spec as YAML."""
    text = data.decode("utf-8", "surrogateescape")
    if not data.isascii() or b"\x7f" in data:
        strange = [text.find(one) for one in set(text) if _is_forbidden(one)]
        if strange:
            at = min(strange)
            reason = "YAML does not allow this character: write it as an escape"
            if "\udc80" <= text[at] <= "\udcff":
                reason = "it is not UTF-8"
            return fastjson.place(text, at, reason)
    lower = text.lower().replace("\\\\", "..")  # the escape of a backslash
    escapes = [at for one in _ONLY_JSON if (at := lower.find(one)) >= 0]
    if escapes:
        reason = "YAML does not have this escape: write the character itself"
        return fastjson.place(text, min(escapes), reason)
    return ""


def _is_forbidden(character: str) -> bool:
    """Return whether YAML 1.1 does not allow a character, or reads it as a line break."""
    is_control = "\x7e" < character < "\xa0"
    return (
        is_control or "\ud800" <= character <= "\udfff" or character in "\u2028\u2029\ufffe\uffff"
    )


def _without_nulls(value: Any) -> Any:
    """Return `value` without null fields: CDI's decoder treats them as absent."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
