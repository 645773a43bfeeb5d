# SPDX-License-Identifier: Apache-2.0
"""TOML files are edited line by line; every byte that gpuhook does not change is kept.

New tables go to the end of the file. A key goes on its own line. A line that changes is kept as a
comment. An inline table, or a value of several lines, is replaced as a whole. The result is
parsed: it must contain the settings and everything that the file contained before, or the edit is
refused.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import Any

from gpuhook.engines.read import toml_document
from gpuhook.engines.read.toml_document import TomlLine, written_lines
from gpuhook.engines.toml import toml_text
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# Not str.splitlines(): it also splits at characters that TOML permits in strings, such as U+2028.
_LINES = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True)
class Setting:
    """The value that a key must have; None removes the key."""

    path: tuple[str, ...]
    value: object


def edited(path: str, content: bytes, settings: Sequence[Setting]) -> bytes:
    """Return the file at `path` with all settings.

    Raises GH2027 if it cannot be edited, and UnreadableTomlError.
    """
    document = toml_document.parsed(content)
    expected = copy.deepcopy(document)
    for one in settings:
        try:
            apply_setting(expected, one)
        except TypeError as error:
            raise fault("GH2027", where=path, said=str(error)) from error
    if expected == document:
        return content
    after = _edited_lines(content, document, settings)
    if not _contains(after, expected):
        reason = "it is written in a way that cannot be changed without changing the rest"
        raise fault("GH2027", where=path, said=reason)
    return after


def without_keys(path: str, content: bytes, keys: Sequence[tuple[str, ...]]) -> bytes:
    """Return the file at `path` without the lines of keys, and headers that this leaves empty.

    Comments remain. Raises GH2027 if it cannot be edited, and UnreadableTomlError.
    """
    expected = toml_document.parsed(content)
    for key in keys:
        _remove(expected, key)
    lines = _LINES.findall(content.decode("utf-8"))
    written = list(written_lines(lines))
    gone = {one for one in written if any(one.path[: len(key)] == key for key in keys)}
    full = {one.table for one in written if one.key and one not in gone}
    for one in written:
        is_above = any(key[: len(one.table)] == one.table[: len(key)] for key in keys)
        if not one.key and is_above and one.table not in full:
            gone.add(one)
    numbers = {number for one in gone for number in range(one.number, one.end + 1)}
    left = "".join(line for number, line in enumerate(lines) if number not in numbers).encode()
    if _contains(left, expected):
        return left
    return toml_text.without_marks(edited(path, content, [Setting(key, None) for key in keys]))


def _contains(content: bytes, expected: dict[str, Any]) -> bool:
    try:
        return toml_document.parsed(content) == expected
    except toml_document.UnreadableTomlError:
        return False


def apply_setting(document: dict[str, Any], setting: Setting) -> None:
    """Apply a setting to a parsed document. Raises TypeError if a parent is not a table."""
    table: Any = document
    for depth, name in enumerate(setting.path[:-1], 1):
        if setting.value is None and name not in table:
            return
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise TypeError(f"{toml_text.dotted(setting.path[:depth])} is not a table")
    if setting.value is None:
        table.pop(setting.path[-1], None)
    else:
        table[setting.path[-1]] = copy.deepcopy(setting.value)


def _remove(table: Any, key: Sequence[str]) -> None:
    """Remove a key, and the tables that this leaves empty."""
    name, *inner = key
    if isinstance(table, dict) and name in table:
        if inner:
            _remove(table[name], inner)
        if not inner or not table[name]:
            del table[name]


def _edited_lines(content: bytes, document: dict[str, Any], settings: Sequence[Setting]) -> bytes:
    text = content.decode("utf-8")
    breaks = text.count("\n")
    end = "\r\n" if breaks and text.count("\r\n") == breaks else "\n"
    lines = text.split(end)
    if lines[-1] == "":
        lines.pop()
    current = copy.deepcopy(document)
    tables: dict[tuple[str, ...], dict[str, object]] = {}
    for one in settings:
        old = _value(current, one.path)
        if old == one.value:
            continue
        apply_setting(current, one)
        if _set_line(lines, one, current, old):
            continue
        if isinstance(one.value, dict):
            tables[one.path] = one.value
        else:
            tables.setdefault(one.path[:-1], {})[one.path[-1]] = one.value
    added = [line for path in tables for line in toml_text.table_lines(path, tables[path])]
    return (end.join([*lines, *(toml_text.block(added) if added else [])]) + end).encode()


def _value(document: dict[str, Any], path: tuple[str, ...]) -> object:
    return toml_document.table(document, *path[:-1]).get(path[-1])


def _set_line(lines: list[str], setting: Setting, current: dict[str, Any], old: object) -> bool:
    """Set a key on the line that has it, or on a new line of its table; False if neither works.

    `current` is the document with the setting, for the line of an inline table. `old` is the value
    before.
    """
    written = list(written_lines(lines))
    path = setting.path
    for one in written:
        if one.key and path[: len(one.path)] == one.path:
            if one.path != path or not _append(lines, one, setting.value, old):
                _replace(lines, one, _value(current, one.path))
            return True
    if setting.value is None or isinstance(setting.value, dict):
        return False
    if len(path) == 1:
        lines.insert(_top(lines, written), _marked_line("", path, setting.value))
        return True
    header = next((one for one in written if not one.key and one.table == path[:-1]), None)
    if header is not None:
        indent = f"{_indent(lines[header.number])}  "
        lines.insert(header.number + 1, _marked_line(indent, path[-1:], setting.value))
        return True
    return _set_dotted(lines, written, setting)


def _set_dotted(lines: list[str], written: list[TomlLine], setting: Setting) -> bool:
    """Set a key below a dotted key that begins as it does; False if there is no such key."""
    parent = setting.path[:-1]
    for one in written:
        depth = len(one.table)
        if len(one.key) > 1 and one.path[: depth + 1] == parent[: depth + 1]:
            line = _marked_line(_indent(lines[one.number]), setting.path[depth:], setting.value)
            lines.insert(one.end + 1, line)
            return True
    return False


def _replace(lines: list[str], line: TomlLine, value: object) -> None:
    """Replace the lines of a key, None for no such key; the old lines are comments."""
    old = lines[line.number : line.end + 1]
    new = [f"{toml_text.WAS}{one}" for one in old if not one.endswith(toml_text.MARK)]
    if value is not None:
        text = f"{_indent(old[0])}{line.text} = {toml_text.value_text(value)}"
        new.append(f"{text}{toml_text.MARK}")
    lines[line.number : line.end + 1] = new


def _append(lines: list[str], line: TomlLine, value: object, old: object) -> bool:
    """Append the last element of a value to an array with each element on its own line.

    Return False if the value is not the `old` one with one more element, or if the brackets are not
    on their own lines.
    """
    number, last = line.number, line.end
    if not isinstance(value, list) or not value or value[:-1] != old:
        return False
    if line.value != "[" or lines[last].strip() != "]":
        return False
    before = next((at for at in range(last - 1, number, -1) if _without_comment(lines[at])), number)
    has_comma = before == number or _without_comment(lines[before]).endswith(",")
    indent = _indent(lines[before]) if before != number else f"{_indent(lines[number])}  "
    text = f"{indent}{'' if has_comma else ', '}{toml_text.value_text(value[-1])}"
    lines.insert(last, f"{text}{toml_text.MARK}")
    return True


def _without_comment(line: str) -> str:
    """Return the text before a `#`, which may be inside a string: the result is parsed anyway."""
    return line.partition("#")[0].strip()


def _marked_line(indent: str, key: Sequence[str], value: object) -> str:
    return f"{indent}{toml_text.dotted(key)} = {toml_text.value_text(value)}{toml_text.MARK}"


def _top(lines: list[str], written: list[TomlLine]) -> int:
    """Return the place of a new top-level key: below the version, else above the first setting."""
    for one in written:
        if one.path == ("version",):
            return one.end + 1
    for number, line in enumerate(lines):
        if line.strip() and not line.lstrip().startswith("#"):
            return number
    return len(lines)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
