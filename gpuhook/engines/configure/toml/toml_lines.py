# SPDX-License-Identifier: Apache-2.0
"""TOML files are edited line by line: keys on lines of their own, new tables at the end.

It is good enough for files as people write them. Whoever calls looks at what has come of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from gpuhook.engines.configure.toml import toml_marks, toml_values
from gpuhook.engines.read import toml_document

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_HEADER = re.compile(r"^(\s*)\[([^\[].*?)\]\s*(?:#.*)?$")
_TEXT = re.compile(r"\"\"\"|'''")
_PART = r"(?:\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+)"
_KEY = re.compile(rf"^(\s*)({_PART}(?:\s*\.\s*{_PART})*)\s*=(.*)$")
_NAME = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|([A-Za-z0-9_-]+)")


@dataclass(frozen=True, slots=True)
class Setting:
    """What a file has to say: the value of a key, None for a key that is not to be there."""

    path: tuple[str, ...]
    value: object


def by_lines(content: bytes, document: dict[str, Any], settings: Sequence[Setting]) -> bytes | None:
    """Return a file with the settings, None where lines alone cannot say them."""
    text = content.decode("utf-8")
    breaks = text.count("\n")
    end = "\r\n" if breaks and text.count("\r\n") == breaks else "\n"
    lines = text.split(end)
    if lines[-1] == "":
        lines.pop()
    tables: dict[tuple[str, ...], dict[str, object]] = {}
    for one in settings:
        if value_of(document, one.path) == one.value:
            continue
        if isinstance(one.value, dict):
            tables[one.path] = one.value
        elif not _line_set(lines, one):
            tables.setdefault(one.path[:-1], {})[one.path[-1]] = one.value
    if () in tables:
        return None
    added = [line for path, members in tables.items() for line in toml_values.table(path, members)]
    if added:
        lines += toml_marks.block(added)
    return (end.join(lines) + end).encode()


def less(content: bytes, keys: Sequence[tuple[str, ...]]) -> bytes:
    """Return a file less the lines of keys, and the headers that this leaves empty.

    Comments stay.
    """
    lines = content.decode("utf-8").splitlines(keepends=True)
    gone, full = set(), set()
    for number, here, names in _keys(lines):
        if any((*here, *names)[: len(key)] == key for key in keys):
            gone.add(number)
        else:
            full.add(here)
    for number, line in _outside_text(lines):
        match = _HEADER.match(line)
        if match:
            table = _names(match.group(2))
            is_above = any(key[: len(table)] == table[: len(key)] for key in keys)
            if is_above and table not in full:
                gone.add(number)
    return "".join(line for at, line in enumerate(lines) if at not in gone).encode()


def value_of(document: dict[str, Any], path: tuple[str, ...]) -> object:
    """Return what a document says at a path, None for nothing."""
    return toml_document.table(document, *path[:-1]).get(path[-1])


def _line_set(lines: list[str], one: Setting) -> bool:
    """Set a key on its own line, below its table's header; False where there is neither."""
    number = _found(lines, one.path)
    if number is not None:
        _replace(lines, number, one)
        return True
    if one.value is None:
        return False
    text = f"{toml_values.key(one.path[-1])} = {toml_values.value(one.value)}"
    if len(one.path) == 1:
        lines.insert(_top(lines), toml_marks.line(text))
        return True
    header = _header(lines, one.path[:-1])
    if header is not None:
        indent = f"{_indent(lines[header])}  "
        lines.insert(header + 1, toml_marks.line(f"{indent}{text}"))
        return True
    return _line_beside(lines, one)


def _line_beside(lines: list[str], one: Setting) -> bool:
    """Set a key below a dotted one of the same table; False where there is none."""
    parent = one.path[:-1]
    for number, here, names in list(_keys(lines)):
        if (*here, *names)[: len(parent)] == parent and len(here) < len(parent) < len(here + names):
            key = toml_values.dotted(one.path[len(here) :])
            text = f"{_indent(lines[number])}{key} = {toml_values.value(one.value)}"
            lines.insert(number + 1, toml_marks.line(text))
            return True
    return False


def _replace(lines: list[str], number: int, one: Setting) -> None:
    old = lines[number]
    match = _KEY.match(old)
    if match and match.group(3).strip() == "[" and isinstance(one.value, list):
        _append(lines, number, one.value[-1])
        return
    kept = toml_marks.was(old)
    if one.value is None:
        lines[number] = kept
        return
    key = match.group(2) if match else toml_values.key(one.path[-1])
    text = f"{_indent(old)}{key} = {toml_values.value(one.value)}"
    lines[number : number + 1] = [kept, toml_marks.line(text)]


def _append(lines: list[str], number: int, value: object) -> None:
    """Append a value to an array of many lines."""
    last = next((at for at in range(number, len(lines)) if lines[at].strip() == "]"), number)
    before = next((at for at in range(last - 1, number, -1) if _bare(lines[at])), number)
    comma = "" if before == number or _bare(lines[before]).endswith(",") else ", "
    indent = _indent(lines[before]) if before != number else f"{_indent(lines[number])}  "
    lines.insert(last, toml_marks.line(f"{indent}{comma}{toml_values.value(value)}"))


def _bare(line: str) -> str:
    """Return a line less its comment, which is good enough for what is looked at afterwards."""
    return line.partition("#")[0].strip()


def _found(lines: list[str], path: tuple[str, ...]) -> int | None:
    """Return the number of the line that has a key."""
    return next((at for at, here, names in _keys(lines) if (*here, *names) == path), None)


def _keys(lines: list[str]) -> Iterator[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    """Yield the lines with keys: the number, the table that it stands in, and the key's names."""
    here: tuple[str, ...] = ()
    for number, line in _outside_text(lines):
        match = _HEADER.match(line)
        if match:
            here = _names(match.group(2))
            continue
        key = _KEY.match(line)
        if key:
            yield number, here, _names(key.group(2))


def _header(lines: list[str], path: tuple[str, ...]) -> int | None:
    for number, line in _outside_text(lines):
        match = _HEADER.match(line)
        if match and _names(match.group(2)) == path:
            return number
    return None


def _outside_text(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers, less those within text of several lines."""
    inside = ""
    for number, line in enumerate(lines):
        was_inside = inside
        for mark in _TEXT.findall(line):
            inside = ("" if mark == inside else inside) if inside else mark
        if not was_inside:
            yield number, line


def _top(lines: list[str]) -> int:
    """Return where a key of no table goes: below the version, or above all but comments."""
    version = _found(lines, ("version",))
    if version is not None:
        return version + 1
    for number, line in enumerate(lines):
        if line.strip() and not line.lstrip().startswith("#"):
            return number
    return len(lines)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(double or single or bare for double, single, bare in _NAME.findall(dotted))
