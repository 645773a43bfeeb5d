# SPDX-License-Identifier: Apache-2.0
"""TOML files are edited so that every byte that is not ours stays.

New tables are appended, keys are written on lines of their own, and a line that changes is kept as
a comment. What that cannot do, such as a member of an inline table, tomlkit does. Either result
counts only if it says exactly what it has to say.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import Any

from gpuhook.engines import toml
from gpuhook.engines.configuring import toml_marks, toml_values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_HEADER = re.compile(r"^(\s*)\[([^\[].*?)\]\s*(?:#.*)?$")
_TEXT = re.compile(r"\"\"\"|'''")
_KEY = re.compile(r"^(\s*)((?:\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+))\s*=(.*)$")
_NAME = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|([A-Za-z0-9_-]+)")


class CannotError(Exception):
    """The file cannot be edited: the message says why."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a file has to say: the value of a key, None for a key that is not to be there."""

    path: tuple[str, ...]
    value: object


def edited(content: bytes, settings: Sequence[Setting]) -> bytes:
    """Return the file with all settings; raises CannotError, and UnreadableError for no TOML."""
    document = toml.parsed(content)
    wanted = _applied(document, settings)
    if wanted == document:
        return content
    for attempt in (_by_lines, _by_tomlkit):
        found = attempt(content, document, settings)
        if found is not None and _says(found, wanted):
            return found
    raise CannotError("it is written in a way that cannot be changed without touching the rest")


def _says(content: bytes, wanted: dict[str, Any]) -> bool:
    try:
        return toml.parsed(content) == wanted
    except toml.UnreadableError:
        return False


def _applied(document: dict[str, Any], settings: Sequence[Setting]) -> dict[str, Any]:
    wanted = copy.deepcopy(document)
    for one in settings:
        place: Any = wanted
        for depth, name in enumerate(one.path[:-1], 1):
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                said = toml_values.dotted(one.path[:depth])
                raise CannotError(f"{said} is no table")
        if one.value is None:
            place.pop(one.path[-1], None)
        else:
            place[one.path[-1]] = copy.deepcopy(one.value)
    return wanted


def _by_lines(
    content: bytes, document: dict[str, Any], settings: Sequence[Setting]
) -> bytes | None:
    text = content.decode("utf-8")
    breaks = text.count("\n")
    end = "\r\n" if breaks and text.count("\r\n") == breaks else "\n"
    lines = text.split(end)
    if lines[-1] == "":
        lines.pop()
    tables: dict[tuple[str, ...], dict[str, object]] = {}
    for one in settings:
        if _value(document, one.path) == one.value:
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


def _value(document: dict[str, Any], path: tuple[str, ...]) -> object:
    return toml.table(document, *path[:-1]).get(path[-1])


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
    if header is None:
        return False
    indent = f"{_indent(lines[header])}  "
    lines.insert(header + 1, toml_marks.line(f"{indent}{text}"))
    return True


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
    text = f"{_indent(old)}{toml_values.key(one.path[-1])} = {toml_values.value(one.value)}"
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
    here: tuple[str, ...] = ()
    for number, line in _outside_text(lines):
        match = _HEADER.match(line)
        if match:
            here = _names(match.group(2))
            continue
        key = _KEY.match(line)
        if key and (*here, *_names(key.group(2))) == path:
            return number
    return None


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


def _by_tomlkit(
    content: bytes, document: dict[str, Any], settings: Sequence[Setting]
) -> bytes | None:
    import tomlkit  # cold, and seldom needed
    from tomlkit.exceptions import TOMLKitError

    try:
        whole = tomlkit.parse(content.decode("utf-8"))
        for one in settings:
            if _value(document, one.path) == one.value:
                continue
            place: Any = whole
            for name in one.path[:-1]:
                if name not in place:
                    place[name] = tomlkit.table(is_super_table=True)
                place = place[name]
            if one.value is None:
                place.remove(one.path[-1])
            else:
                place[one.path[-1]] = one.value
        return tomlkit.dumps(whole).encode()
    except (TOMLKitError, KeyError, TypeError, AttributeError, ValueError):
        return None  # some versions trip over tables that are written in odd places
