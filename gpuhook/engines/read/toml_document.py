# SPDX-License-Identifier: Apache-2.0
"""TOML documents, and the lines of their tables and keys."""

from __future__ import annotations

import codecs
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from gpuhook.engines.read.engine_config import ConfigPlace, Trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuhook.engines.read.config_files import ConfigFiles

_LINE = re.compile(r"\(at line (\d+), column \d+\)")
_HEADER = re.compile(r"^\s*\[{1,2}(.*?)\]{1,2}\s*(?:#.*)?$")
_TOKEN = re.compile(r"\"\"\"|'''|\"(?:[^\"\\]|\\.)*\"?|'[^']*'?|#.*|[][{}]")
# The text up to the end of a multi-line string. Its last two characters may be quotes, too.
_STRING_END = {
    '"""': re.compile(r"(?:[^\\]|\\.)*?\"{3,5}"),
    "'''": re.compile(r".*?'{3,5}"),
}
_NAME = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|([A-Za-z0-9_-]+)")
_PART = r"(?:\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+)"
_MOST_PARTS = 100
_LONG_KEY = re.compile(rf"(?<![\w.\"'-]){_PART}(?:\s*\.\s*{_PART}){{{_MOST_PARTS}}}")
_KEY = re.compile(rf"^\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=(.*)$")


class UnreadableTomlError(Exception):
    """A document that cannot be read. `line` begins at 1, 0 if unknown.

    `is_bounded` is set if it exceeds a limit of gpuhook that engines do not have.
    """

    def __init__(self, reason: str, line: int = 0, *, is_bounded: bool = False) -> None:
        """Take the reason in words."""
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.is_bounded = is_bounded

    def trouble(self, path: str) -> Trouble:
        """Return the error as a problem of the file `path`."""
        reason = "is not read by gpuhook" if self.is_bounded else "is not TOML"
        place = ConfigPlace(path, self.line)
        return Trouble(place, f"{reason}: {self.reason}", is_unread=self.is_bounded)


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A TOML file of a node, and its document."""

    path: str
    content: bytes
    document: dict[str, Any]

    def place(self, *names: str) -> ConfigPlace:
        """Return the place of a table or key."""
        return ConfigPlace(self.path, line_of(self.content, names))


def read_files(
    files: ConfigFiles, paths: Iterable[str]
) -> tuple[tuple[TomlFile, ...], list[Trouble]]:
    """Return the existing files, and the problems of those that cannot be read. Raises OSError."""
    found: list[TomlFile] = []
    trouble: list[Trouble] = []
    for path in paths:
        content = files.read(path)
        if content is None:
            continue
        try:
            found.append(TomlFile(path, content, parsed(content)))
        except UnreadableTomlError as error:
            trouble.append(error.trouble(path))
    return tuple(found), trouble


def parsed(content: bytes) -> dict[str, Any]:
    """Return the document. Raises UnreadableTomlError.

    A byte order mark is refused, as most engines do: containerd from 2.0 on, podman of Debian 12.
    """
    if content.startswith(codecs.BOM_UTF8):
        reason = (
            "it begins with a byte order mark, which not every engine accepts: save it without one"
        )
        raise UnreadableTomlError(reason, 1)
    try:
        text = content.decode("utf-8")
        _require_short_keys(text)
        document = tomllib.loads(text)
        _require_64_bits(document)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UnreadableTomlError("it is not UTF-8", line) from error
    except RecursionError as error:
        raise UnreadableTomlError("it is nested too deeply", is_bounded=True) from error
    except tomllib.TOMLDecodeError as error:
        where = _LINE.search(str(error))
        reason = _LINE.sub("", str(error)).strip()
        raise UnreadableTomlError(reason, int(where.group(1)) if where else 0) from error
    except ValueError as error:  # of int(); an integer of TOML has 64 bits
        raise UnreadableTomlError("a number has too many digits") from error
    return document


def _require_64_bits(document: dict[str, Any]) -> None:
    """Raise UnreadableTomlError for an integer that engines do not read."""
    left: list[Any] = [document]
    for value in left:
        if isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise UnreadableTomlError(f"{value} is not an integer of 64 bits")


def _require_short_keys(text: str) -> None:
    """Refuse a key of many parts: the memory that tomllib needs grows with their square."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") >= _MOST_PARTS and _LONG_KEY.search(line):
            reason = f"a key has more than {_MOST_PARTS} parts"
            raise UnreadableTomlError(reason, number, is_bounded=True)


def table(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the table at these names, {} if it does not exist or is not a table."""
    found: Any = document
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def no_tables(file: TomlFile, names: Sequence[str]) -> Iterator[Trouble]:
    """Yield the parents, and the value at these names, that are not tables."""
    for depth in range(1, len(names) + 1):
        value = table(file.document, *names[: depth - 1]).get(names[depth - 1], {})
        if not isinstance(value, dict):
            dotted = ".".join(names[:depth])
            yield Trouble(file.place(*names[:depth]), f"has {dotted} that is not a table")


def no_texts(file: TomlFile, names: Sequence[str]) -> Iterator[Trouble]:
    """Yield the key at these names if it exists and is not a list of strings."""
    value = table(file.document, *names[:-1]).get(names[-1], [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        problem = f"has {'.'.join(names)} that is not a list of strings"
        yield Trouble(file.place(*names), problem)


def text(value: Any) -> str:
    """Return a value that must be a string, "" for another type."""
    return value if isinstance(value, str) else ""


def texts(value: Any) -> tuple[str, ...]:
    """Return the strings of a value that must be a list of strings."""
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


class TomlLine(NamedTuple):
    """A line with a header or a key. `number` begins at 0; `key` is () on the line of a header.

    `text` and `value` are the key and the first line of its value as they are written, "" on the
    line of a header. `end` is the number of the value's last line.
    """

    number: int
    table: tuple[str, ...]
    end: int
    key: tuple[str, ...] = ()
    text: str = ""
    value: str = ""

    @property
    def path(self) -> tuple[str, ...]:
        """The names of the table and of the key."""
        return self.table + self.key


def written_lines(lines: Iterable[str]) -> Iterator[TomlLine]:
    """Yield the lines that have a header or a key, without those inside a multi-line value.

    Keys inside inline tables are not found.
    """
    table: tuple[str, ...] = ()
    opened: TomlLine | None = None
    quote, depth = "", 0
    for number, line in enumerate(lines):
        rest = line
        if opened is None:
            header, key = _HEADER.match(line), _KEY.match(line)
            if header:
                table = _names(header.group(1))
                yield TomlLine(number, table, number)
            if header or key is None:
                continue
            text, rest = key.group(1), key.group(2)
            opened = TomlLine(number, table, number, _names(text), text, rest.strip())
        quote, depth = _open_value(rest, quote, depth)
        if not quote and depth <= 0:
            yield opened._replace(end=number)
            opened, depth = None, 0


def _open_value(text: str, quote: str, depth: int) -> tuple[str, int]:
    """Return the multi-line string and the number of brackets that are open after a line.

    `quote` and `depth` are those before the line.
    """
    at = 0
    while True:
        found = _STRING_END[quote].match(text, at) if quote else _TOKEN.search(text, at)
        if found is None:
            return quote, depth
        at, mark = found.end(), found.group()
        if quote:
            quote = ""
        elif mark in _STRING_END:
            quote = mark
        else:
            depth += (mark in "[{") - (mark in "]}")


def line_of(content: bytes, names: Sequence[str]) -> int:
    """Return the first line of a table or key, from 1; 0 if it is not found.

    A key of an inline table has the line of that table.
    """
    expected = tuple(names)
    places, keys = _lines_of(content)
    if expected in places:
        return places[expected]
    around = (expected[:size] for size in range(len(expected), 0, -1))
    return next((keys[one] for one in around if one in keys), 0)


@lru_cache(maxsize=4)
def _lines_of(content: bytes) -> tuple[dict[tuple[str, ...], int], dict[tuple[str, ...], int]]:
    """Return the first line of each table or key and of each table around it, and of each key."""
    places: dict[tuple[str, ...], int] = {}
    keys: dict[tuple[str, ...], int] = {}
    for one in written_lines(content.decode("utf-8", "replace").split("\n")):
        for size in range(min(len(one.path), _MOST_PARTS) + 1):
            places.setdefault(one.path[:size], one.number + 1)
        if one.key:
            keys.setdefault(one.path, one.number + 1)
    return places, keys


def _names(dotted: str) -> tuple[str, ...]:
    found: Iterable[tuple[str, str, str]] = _NAME.findall(dotted)
    return tuple(double or single or bare for double, single, bare in found)
