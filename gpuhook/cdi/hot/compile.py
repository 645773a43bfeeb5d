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

_SURROGATES = (b"8", b"9", b"a", b"b", b"c", b"d", b"e", b"f")  # the digit after \\ud
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
    try:
        found = fastjson.loads(data, repeated=repeated)
    except ValueError as error:
        raise fault("GH1109", path=path, place="JSON", reason=error) from error
    reason = f"the key {repeated[0]!r} occurs twice" if repeated else _not_yaml(data)
    if reason:
        raise fault("GH1109", path=path, place="JSON", reason=reason)
    return found


def _not_yaml(data: bytes) -> str:
    """Return why a JSON text is not YAML, "" if it is: engines read every spec as YAML."""
    if not data.isascii() or b"\x7f" in data:
        try:
            characters = set(data.decode())
        except UnicodeDecodeError:
            return "it is not UTF-8"
        if any(map(_is_forbidden, characters)):
            return "it has a character that YAML does not allow in a text"
    lower = data.lower()
    at = lower.find(b"\\ud")
    while at >= 0:
        before = lower[:at]
        is_escape = not (len(before) - len(before.rstrip(b"\\"))) % 2
        if is_escape and lower[at + 3 : at + 4] in _SURROGATES:
            return "it has half a character as an escape, which YAML does not allow"
        at = lower.find(b"\\ud", at + 1)
    return ""


def _is_forbidden(character: str) -> bool:
    """Return whether YAML 1.1 does not allow a character, or reads it as a line break."""
    return "\x7e" < character < "\xa0" or character in "\u2028\u2029\ufffe\uffff"


def _without_nulls(value: Any) -> Any:
    """Return `value` without null fields: CDI's decoder treats them as absent."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
