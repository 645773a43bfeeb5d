# SPDX-License-Identifier: Apache-2.0
"""The general kinds of values: booleans, texts, choices, numbers and durations.

A kind turns plain data (of YAML) or a text (of the command line and the environment) into the value
that Configuration has, and back. Booleans and durations are read as Go reads them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuhook.errors import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fractions import Fraction
    from typing import Any

TRUE = ("1", "t", "T", "TRUE", "true", "True")
FALSE = ("0", "f", "F", "FALSE", "false", "False")
INFINITE = "infinite"
SHORTEST = 0.1  # seconds; a shorter period is a busy loop
_LONGEST = 2**63  # nanoseconds, Go's limit
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9}
_UNITS |= {"m": 60 * 10**9, "h": 3600 * 10**9}
_DURATION_HINT = "write it like 90s, 1m30s or 500ms; a number is nanoseconds"
_DURATION = re.compile(r"(\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(ns|us|µs|μs|ms|s|m|h)")


class UnfitError(ValueError):
    """A value that its key cannot have; `index` is the position of a wrong list item."""

    def __init__(self, message: str, hint: str = "", index: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.index = index


def shown(value: object) -> str:
    """Return a value as a sentence names it: `the text "4"`, `2.5`, `a list`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return f'the text "{printable(value, 80)}"'
    if isinstance(value, (list, tuple)):
        return "a list"
    return "a mapping" if isinstance(value, dict) else printable(value, 40)


def unfit(requirement: str, value: object, hint: str = "", index: int | None = None) -> UnfitError:
    """Return the error of a value that does not meet a requirement: "must be X, found Y"."""
    return UnfitError(f"must be {requirement}, found {shown(value)}", hint, index)


class ValueKind:
    """A kind of value. `parse` and `parse_text` raise UnfitError."""

    __slots__ = ()
    is_list = False  # several texts of a repeated option are one list
    has_numbers = False  # also in texts

    @property
    def metavar(self) -> str:
        """The placeholder of a value in the help."""
        return "TEXT"

    def parse(self, value: object) -> Any:
        """Return the value that Configuration has for plain data of a file."""
        raise NotImplementedError

    def parse_text(self, text: str) -> Any:
        """Return the value that Configuration has for a text; lists have commas."""
        words = split(text) if self.is_list else [text]
        data = [_number(word) for word in words] if self.has_numbers else words
        return self.parse(data if self.is_list else data[0])

    def plain(self, value: Any) -> Any:
        """Return the data that a file has for a value of Configuration."""
        return list(value) if self.is_list else value

    def text(self, value: Any) -> str:
        """Return the text that an option takes for a value of Configuration."""
        data = self.plain(value)
        if isinstance(data, (list, tuple)):
            return ",".join(map(str, data))
        return str(data).lower() if isinstance(data, bool) else str(data)

    def schema(self) -> dict[str, object]:
        """Return the JSON schema of the data that a file may have."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Boolean(ValueKind):
    """True or false; as a text in any of the spellings that Go's strconv.ParseBool takes."""

    metavar = "[true|false]"

    def parse(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        raise unfit("true or false", value)

    def parse_text(self, text: str) -> bool:
        return self.parse(text in TRUE if text in TRUE + FALSE else text)

    def schema(self) -> dict[str, object]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Text(ValueKind):
    """Any text on one line; with a `pattern`, a text that matches it whole, described by `what`."""

    pattern: str = r"[^\x00-\x1f\x7f]*"
    what: str = "a text"
    metavar: str = "TEXT"

    def parse(self, value: object) -> str:
        if isinstance(value, str) and re.fullmatch(self.pattern, value):
            return value
        raise unfit(self.what, value)

    def schema(self) -> dict[str, object]:
        return {"type": "string", "pattern": f"^(?:{self.pattern})$"}


BOOLEAN = Boolean()
PATH = Text(r"/[^\x00-\x1f\x7f]*", "an absolute path", "PATH")
FILE, DIRECTORY, NAME = (Text(metavar=word) for word in ("FILE", "DIRECTORY", "NAME"))
OPTIONAL_PATH = Text(r"(?:/[^\x00-\x1f\x7f]*)?", "an absolute path, or empty", "PATH")


@dataclass(frozen=True, slots=True)
class Choice(ValueKind):
    """One of some words."""

    words: tuple[str, ...]

    @property
    def metavar(self) -> str:
        return f"[{'|'.join(self.words)}]"

    def parse(self, value: object) -> str:
        if isinstance(value, str) and value in self.words:
            return value
        raise unfit(one_of(self.words), value)

    def schema(self) -> dict[str, object]:
        return {"enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class ChoiceList(ValueKind):
    """One or several of some words: a word, or a list of words.

    `title` replaces the words in the help of an option, if they are too many for its line.
    """

    words: tuple[str, ...]
    may_be_empty: bool = False
    title: str = ""

    is_list = True

    @property
    def metavar(self) -> str:
        return f"{self.title or '[' + '|'.join(self.words) + ']'}[,...]"

    def parse(self, value: object) -> tuple[str, ...]:
        items = value if isinstance(value, list) else [value]
        if not items and not self.may_be_empty:
            raise UnfitError(f"is empty: must be one or more of {', '.join(self.words)}")
        for index, item in enumerate(items):
            if not isinstance(item, str) or item not in self.words:
                place = index if isinstance(value, list) else None
                raise unfit(one_of(self.words), item, index=place)
        return tuple(dict.fromkeys(items))

    def schema(self) -> dict[str, object]:
        one = {"enum": list(self.words)}
        several = {"type": "array", "items": one} | ({} if self.may_be_empty else {"minItems": 1})
        return {"anyOf": [one, several]}


@dataclass(frozen=True, slots=True)
class Whole(ValueKind):
    """A whole number from `least` to `most`."""

    least: int
    most: int

    metavar = "NUMBER"
    has_numbers = True

    def parse(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise unfit("an integer", value)
        if value < self.least:
            raise unfit(f"{self.least} or more", value)
        if value > self.most:
            raise unfit(f"{self.most} or less", value)
        return value

    def schema(self) -> dict[str, object]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Number(ValueKind):
    """A number from `least` to `most`."""

    least: float
    most: float

    metavar = "NUMBER"
    has_numbers = True

    def parse(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise unfit("a number", value)
        if not self.least <= value <= self.most:  # true for NaN, too
            raise unfit(f"{self.least:g} to {self.most:g}", value)
        return float(value)

    def schema(self) -> dict[str, object]:
        return {"type": "number", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Duration(ValueKind):
    """A duration as Go writes it ("1m30s") or in nanoseconds; seconds, None for "infinite".

    It is `shortest` seconds or longer, or 0 if it `may_be_zero`.
    """

    may_be_infinite: bool = False
    shortest: float = SHORTEST
    may_be_zero: bool = False

    metavar = "DURATION"
    has_numbers = True

    def parse(self, value: object) -> float | None:
        if value == INFINITE and self.may_be_infinite:
            return None
        nanoseconds = _nanoseconds(value)
        if nanoseconds is None or nanoseconds >= _LONGEST:
            infinite = f' or "{INFINITE}"' if self.may_be_infinite else ""
            raise unfit(f"a duration{infinite}", value, _DURATION_HINT)
        if nanoseconds < self.shortest * 10**9 and not (self.may_be_zero and nanoseconds == 0):
            hint = _DURATION_HINT if isinstance(value, int) else ""
            zero = "0, or " if self.may_be_zero else ""
            raise unfit(f"{zero}{self.shortest:g}s or longer", value, hint)
        return float(nanoseconds / 10**9)

    def plain(self, value: Any) -> object:
        if value is None:
            return INFINITE
        count = round(value * 10**9)
        unit = next(unit for unit in ("s", "ms", "us", "ns") if count % _UNITS[unit] == 0)
        return f"{count // _UNITS[unit]}{unit}"

    def schema(self) -> dict[str, object]:
        go = {"type": "string", "pattern": r"^([0-9]*\.?[0-9]*(ns|us|µs|μs|ms|s|m|h))+$"}
        kinds: list[dict[str, object]] = [{"type": "integer", "minimum": 0}, {**go}]
        return {"anyOf": [*kinds, {"const": INFINITE}] if self.may_be_infinite else kinds}


def split(text: str) -> list[str]:
    """Return the words of a text with commas between them."""
    return [word.strip() for word in text.split(",") if word.strip()]


def _number(word: str) -> int | float | str:
    """Return the number that a text is, else the text."""
    if re.fullmatch(r"[0-9]{1,20}", word):
        return int(word)
    return float(word) if re.fullmatch(r"[0-9]{1,9}\.[0-9]{0,9}", word) else word


def one_of(words: tuple[str, ...]) -> str:
    """Return words as a requirement: `one of a, b`, or the only one in quotes."""
    return f'"{words[0]}"' if len(words) == 1 else "one of " + ", ".join(words)


def _nanoseconds(value: object) -> Fraction | int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or len(value) > 100:
        return None
    parts = _DURATION.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        return None
    from fractions import Fraction

    return sum((Fraction(number) * _UNITS[unit] for number, unit in parts), Fraction(0))
