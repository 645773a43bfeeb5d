# SPDX-License-Identifier: Apache-2.0
"""Values and tables as TOML writes them."""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def key(name: str) -> str:
    """Return a key, quoted where it has to be."""
    return name if _BARE.fullmatch(name) else _string(name)


def dotted(names: Sequence[str]) -> str:
    """Return keys with dots between them, as a header has them."""
    return ".".join(key(name) for name in names)


def value(given: object) -> str:
    """Return a value on one line; a table is an inline one."""
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, str):
        return _string(given)
    if isinstance(given, list | tuple):
        return f"[{', '.join(value(one) for one in given)}]"
    if isinstance(given, dict):
        members = ", ".join(f"{key(name)} = {value(one)}" for name, one in given.items())
        return f"{{ {members} }}" if members else "{}"
    return str(given)  # numbers; and times, which TOML writes as Python does


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def table(names: Sequence[str], members: Mapping[str, object], indent: str = "") -> Iterator[str]:
    """Yield the lines of a table, its header first, and of the tables in it."""
    yield f"{indent}[{dotted(names)}]"
    inner = f"{indent}  "
    for name, one in members.items():
        if not isinstance(one, dict):
            yield f"{inner}{key(name)} = {value(one)}"
    for name, one in members.items():
        if isinstance(one, dict):
            yield from table((*names, name), one, inner)
