# SPDX-License-Identifier: Apache-2.0
"""A CDI spec file checked and compiled; what is wrong with it is compiled too.

JSON sources are parsed here. A YAML source needs the cold side, whose parser is passed in.
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

_MAX_SIZE = 8 << 20  # bytes: a spec of 16 GPUs with 7 MIG instances each has 0.5 MB


def compile_json(path: str, found: os.stat_result) -> Compiled:
    """Compile and keep the JSON spec at `path`; `found` is its stat from before it is read."""
    return compile_with(parse_json, path, found)


def compile_with(parse: Parser, path: str, found: os.stat_result) -> Compiled:
    """Compile and keep the spec at `path`; `parse(data, path)` returns what its text says.

    A file changed since `found` is compiled under the old key, which never matches again. A file
    that cannot be read right now is not kept, since nothing of its identity would change.
    """
    try:
        spec = checked(parse, path)
    except OSError as error:
        unreadable = fault("GH1110", path=path, reason=error.strerror or error)
        return compiled_spec.Compiled.of_fault(path, unreadable)
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
    """Return what a spec file holds; raises OSError, GH1316 if too large, GH1310 for no file."""
    try:
        return files.read(path, _MAX_SIZE)
    except GpuhookError:
        if isfile(path):
            raise fault("GH1316", path=path, limit=_MAX_SIZE >> 20) from None
        raise


def parse_json(data: bytes, path: str) -> Any:
    """Return what a JSON text says; GH1109 says where it is broken."""
    repeated: list[str] = []
    try:
        found = fastjson.loads(data, repeated=repeated)
    except ValueError as error:
        raise fault("GH1109", path=path, place="JSON", reason=error) from error
    if repeated:
        reason = f"the key {repeated[0]!r} occurs twice"
        raise fault("GH1109", path=path, place="JSON", reason=reason)
    return found


def _without_nulls(value: Any) -> Any:
    """Return `value` without null fields: CDI's decoder takes them as absent."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
