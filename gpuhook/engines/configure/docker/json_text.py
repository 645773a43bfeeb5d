# SPDX-License-Identifier: Apache-2.0
"""Edit JSON text in place: members are set and removed, every other character is kept.

The text must be valid JSON. Offsets are in characters, not bytes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]  # public since Python 2.6
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_SPACE = re.compile(r"[ \t\r\n]*")
_GAP = re.compile(r"\n?[ \t]*\Z")
_INDENT = "    "


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object, and the offsets of its name, of its value, and of the value's end."""

    name: str
    start: int
    value: int
    end: int


def members(text: str, path: Sequence[str] = ()) -> list[Member]:
    """Return the members of the object at `path`, in order. Raises KeyError for no object."""
    return _members(text, _object(text, path))


def is_object(text: str, path: Sequence[str] = ()) -> bool:
    """Return whether the value at `path` is an object."""
    try:
        return text[_object(text, path)] == "{"
    except KeyError:
        return False


def repeated(text: str, path: Sequence[str], name: str) -> Member | None:
    """Return the second member of that name in an object, None if there is none."""
    found = [one for one in members(text, path) if one.name == name]
    return found[1] if len(found) > 1 else None


def line(text: str, at: int) -> int:
    """Return the line of an offset, from 1."""
    return text.count("\n", 0, at) + 1


def with_member(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with a member set; missing parents are created.

    A new member is the last one, with the indentation of its neighbours. An old value is replaced.
    """
    depth = 0
    while depth < len(path) - 1 and is_object(text, path[: depth + 1]):
        depth += 1
    above, name = path[:depth], path[depth]
    for key in reversed(path[depth + 1 :]):
        value = {key: value}
    for one in members(text, above):
        if one.name == name:
            new = _dumped(text, value, _gap(text, one.start))
            return text[: one.value] + new + text[one.end :]
    return _inserted(text, above, name, value)


def without_member(text: str, path: Sequence[str]) -> str:
    """Return the text without a member and its comma. Raises KeyError if it does not exist."""
    *above, name = path
    found = members(text, above)
    place = [one.name for one in found].index(name)
    if len(found) == 1:
        return text[: _object(text, above) + 1] + text[_skipped(text, found[0].end) :]
    if place == len(found) - 1:
        return text[: found[place - 1].end] + text[found[place].end :]
    return text[: found[place].start] + text[found[place + 1].start :]


def _object(text: str, path: Sequence[str]) -> int:
    at = _skipped(text, 0)
    for name in path:
        at = {one.name: one.value for one in _members(text, at)}[name]
    return at


def _members(text: str, at: int) -> list[Member]:
    if text[at] != "{":
        raise KeyError(text[at])
    decoder = json.JSONDecoder()
    found = []
    at = _skipped(text, at + 1)
    while text[at] != "}":
        name, end = scanstring(text, at + 1)
        value = _skipped(text, _skipped(text, end) + 1)
        _, end = decoder.raw_decode(text, value)
        found.append(Member(name, at, value, end))
        at = _skipped(text, end)
        if text[at] == ",":
            at = _skipped(text, at + 1)
    return found


def _skipped(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _inserted(text: str, above: Sequence[str], name: str, value: Any) -> str:
    start, found = _object(text, above), members(text, above)
    key = json.dumps(name, ensure_ascii=False)
    if not found:
        line = text[text.rfind("\n", 0, start) + 1 : start]
        outer = line[: len(line) - len(line.lstrip(" \t"))]
        newline = _newline(text)
        gap = f"{newline}{outer}{_unit(text)}"
        new = f"{gap}{key}: {_dumped(text, value, gap)}{newline}{outer}"
        return text[: start + 1] + new + text[_skipped(text, start + 1) :]
    last = found[-1]
    colon, gap = _colon(text, last), _gap(text, last.start)
    space = gap if "\n" in gap else colon[1:] and " "
    new = f",{space}{key}{colon}{_dumped(text, value, gap)}"
    return text[: last.end] + new + text[last.end :]


def _dumped(text: str, value: Any, gap: str) -> str:
    """Return the text of a value, on lines with the indentation of `gap` if it has a line break."""
    if "\n" not in gap:
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, indent=_unit(text), ensure_ascii=False).replace("\n", gap)


def _gap(text: str, at: int) -> str:
    """Return the white space before an offset, from the last line break on."""
    found = _GAP.search(text, max(0, text.rfind("\n", 0, at)), at)
    return found.group().replace("\n", _newline(text)) if found else ""


def _unit(text: str) -> str:
    first = members(text)[:1]
    gap = _gap(text, first[0].start) if first else ""
    return gap.partition("\n")[2] or _INDENT


def _colon(text: str, member: Member) -> str:
    end = scanstring(text, member.start + 1)[1]
    new = text[end : member.value]
    return new if "\n" not in new else ": "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
