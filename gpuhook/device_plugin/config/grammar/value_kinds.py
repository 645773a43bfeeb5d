# SPDX-License-Identifier: Apache-2.0
"""The kinds of values that the configuration has: what fits, from a file or from a text.

A kind turns plain data (of YAML) or a text (of the command line and the environment) into the value
that Configuration holds, and back; what doesn't fit is an UnfitError, in words. Booleans and
durations are taken as Go takes them, quantities as Kubernetes does.
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
SHORTEST = 0.1  # seconds: what wakes up more often than this is a busy loop
_MEANT_SECONDS = 3600  # and fewer nanoseconds were meant as seconds
_LONGEST = 2**63  # nanoseconds, Go's limit
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9}
_UNITS |= {"m": 60 * 10**9, "h": 3600 * 10**9}
_DURATION = re.compile(r"(\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(ns|us|µs|μs|ms|s|m|h)")
_QUANTITY = re.compile(
    r"(\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:([KMGTPE]i|[kMGTPE])|[eE]([+-]?\d{1,2}))?"
)
_SCALES = {f"{letter}i": 1024**n for n, letter in enumerate("KMGTPE", 1)}
_SCALES |= {letter: 1000**n for n, letter in enumerate("kMGTPE", 1)}


class UnfitError(ValueError):
    """A value that its key cannot have; `index` is that of the item of a list that is at fault."""

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


class ValueKind:
    """What all kinds can do. `of` and `of_text` raise UnfitError."""

    __slots__ = ()

    @property
    def metavar(self) -> str:
        """Return what stands for a value in the help."""
        return "TEXT"

    def of(self, value: object) -> Any:
        """Return what Configuration holds for plain data of a file."""
        raise NotImplementedError

    def of_text(self, text: str) -> Any:
        """Return what Configuration holds for a text of the command line or the environment."""
        return self.of(text)

    def plain(self, value: Any) -> object:
        """Return the data that a file has for what Configuration holds."""
        return value

    def schema(self) -> dict[str, object]:
        """Return the JSON schema of what a file may have."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Boolean(ValueKind):
    """True or false; as a text in any of the spellings that Go's strconv.ParseBool takes."""

    @property
    def metavar(self) -> str:
        return "[true|false]"

    def of(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        raise UnfitError(f"must be true or false, found {shown(value)}")

    def of_text(self, text: str) -> bool:
        if text in TRUE or text in FALSE:
            return text in TRUE
        raise UnfitError(f"must be true or false, found {shown(text)}")

    def schema(self) -> dict[str, object]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Text(ValueKind):
    """Any text on one line; with a `pattern` one that matches it whole, described by `what`."""

    pattern: str = r"[^\x00-\x1f\x7f]*"
    what: str = "a text"
    stands_for: str = "TEXT"  # in the help

    @property
    def metavar(self) -> str:
        return self.stands_for

    def of(self, value: object) -> str:
        if isinstance(value, str) and re.fullmatch(self.pattern, value):
            return value
        raise UnfitError(f"must be {self.what}, found {shown(value)}")

    def schema(self) -> dict[str, object]:
        return {"type": "string", "pattern": f"^(?:{self.pattern})$"}


PATH = Text(r"/[^\x00-\x1f\x7f]*", "an absolute path", "PATH")
OPTIONAL_PATH = Text(r"(?:/[^\x00-\x1f\x7f]*)?", "an absolute path, or empty", "PATH")


@dataclass(frozen=True, slots=True)
class Choice(ValueKind):
    """One of some words; `unserved` are words of the reference that this version has nothing for.

    Taking those in silence would leave a node without what its owner asked for.
    """

    words: tuple[str, ...]
    unserved: tuple[str, ...] = ()

    @property
    def metavar(self) -> str:
        return f"[{'|'.join(self.words)}]"

    def of(self, value: object) -> str:
        if isinstance(value, str) and value in self.words:
            return value
        if isinstance(value, str) and value in self.unserved:
            raise UnfitError(
                f"{value} is not served by this version of gpuhook",
                f"it must be {_one_of(self.words)}",
            )
        raise UnfitError(f"must be {_one_of(self.words)}, found {shown(value)}")

    def schema(self) -> dict[str, object]:
        return {"enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class ChoiceKind(ValueKind):
    """One or several of some words: one alone, or a list; as a text with commas between them."""

    words: tuple[str, ...]
    may_be_empty: bool = False

    @property
    def metavar(self) -> str:
        return f"[{'|'.join(self.words)}][,...]"

    def of(self, value: object) -> tuple[str, ...]:
        items = value if isinstance(value, list) else [value]
        if not items and not self.may_be_empty:
            raise UnfitError(f"names nothing: must be one or several of {', '.join(self.words)}")
        for index, item in enumerate(items):
            if not isinstance(item, str) or item not in self.words:
                place = index if isinstance(value, list) else None
                raise UnfitError(f"must be {_one_of(self.words)}, found {shown(item)}", index=place)
        return tuple(dict.fromkeys(items))

    def of_text(self, text: str) -> tuple[str, ...]:
        return self.of(split(text))

    def plain(self, value: Any) -> object:
        return list(value)

    def schema(self) -> dict[str, object]:
        one = {"enum": list(self.words)}
        several = {"type": "array", "items": one} | ({} if self.may_be_empty else {"minItems": 1})
        return {"anyOf": [one, several]}


@dataclass(frozen=True, slots=True)
class Whole(ValueKind):
    """A whole number, `least` and more, at most `most` with `most_why` as the reason."""

    least: int
    most: int

    @property
    def metavar(self) -> str:
        return "NUMBER"

    def of(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise UnfitError(f"must be an integer, found {shown(value)}")
        if value < self.least:
            raise UnfitError(f"must be {self.least} or more, found {shown(value)}")
        if value > self.most:
            raise UnfitError(f"must be {self.most} or less, found {shown(value)}")
        return value

    def schema(self) -> dict[str, object]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class NumberKind(ValueKind):
    """A number from `least` to `most`."""

    least: float
    most: float

    @property
    def metavar(self) -> str:
        return "NUMBER"

    def of(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UnfitError(f"must be a number, found {shown(value)}")
        if not self.least <= value <= self.most:  # not a number is not, either
            raise UnfitError(f"must be {self.least:g} to {self.most:g}, found {shown(value)}")
        return float(value)

    def of_text(self, text: str) -> float:
        return self.of(float(text) if re.fullmatch(r"\d{1,9}(\.\d{0,9})?", text) else text)

    def schema(self) -> dict[str, object]:
        return {"type": "number", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Duration(ValueKind):
    """A time as Go writes it ("1m30s") or in nanoseconds; seconds, None for "infinite".

    It is `shortest` seconds and longer, or 0 where it `may_be_zero`.
    """

    may_be_infinite: bool = False
    shortest: float = SHORTEST
    may_be_zero: bool = False

    @property
    def metavar(self) -> str:
        return "DURATION"

    def of(self, value: object) -> float | None:
        if value == INFINITE and self.may_be_infinite:
            return None
        nanoseconds = _nanoseconds(value)
        if nanoseconds is None or nanoseconds >= _LONGEST:
            other = f' or "{INFINITE}"' if self.may_be_infinite else ""
            raise UnfitError(
                f"must be a duration{other}, found {shown(value)}",
                "write it like 90s, 1m30s or 500ms; a number is nanoseconds",
            )
        if nanoseconds < self.shortest * 10**9 and not (self.may_be_zero and nanoseconds == 0):
            zero = "0, or " if self.may_be_zero else ""
            hint = ""
            if isinstance(value, int):
                meant = value if 0 < value <= _MEANT_SECONDS else 60
                hint = f"a number without a unit is nanoseconds: write {meant}s"
            raise UnfitError(
                f"must be {zero}{self.shortest:g}s or longer, found {shown(value)}", hint
            )
        return float(nanoseconds / 10**9)

    def of_text(self, text: str) -> float | None:
        return self.of(int(text) if re.fullmatch(r"\d{1,20}", text) else text)

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


@dataclass(frozen=True, slots=True)
class Quantity(ValueKind):
    """An amount of memory, as Kubernetes writes quantities ("512Mi", "1.5G"), in bytes."""

    @property
    def metavar(self) -> str:
        return "QUANTITY"

    def of(self, value: object) -> int:
        number = -1
        if isinstance(value, int) and not isinstance(value, bool):
            number = value
        elif isinstance(value, str) and (match := _QUANTITY.fullmatch(value)):
            from fractions import Fraction  # with decimal: 5 ms that few configurations need

            amount, suffix, exponent = match.groups()
            scale = Fraction(10) ** int(exponent or 0) * _SCALES.get(suffix, 1)
            number = -(-(Fraction(amount) * scale) // 1)  # Kubernetes rounds up
        if 0 <= number < 2**63:
            return number
        raise UnfitError(
            f"must be an amount of memory, found {shown(value)}", "write it like 512Mi or 2Gi"
        )

    def schema(self) -> dict[str, object]:
        text = {"type": "string", "pattern": f"^(?:{_QUANTITY.pattern})$"}
        return {"anyOf": [{"type": "integer", "minimum": 0}, text]}


def split(text: str) -> list[str]:
    """Return the words of a text with commas between them."""
    return [word.strip() for word in text.split(",") if word.strip()]


def _one_of(words: tuple[str, ...]) -> str:
    return f'"{words[0]}"' if len(words) == 1 else "one of " + ", ".join(words)


def _nanoseconds(value: object) -> Fraction | int | None:
    """Return the length of a duration, None for what is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or len(value) > 100:
        return None
    parts = _DURATION.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        return None
    from fractions import Fraction

    return sum((Fraction(number) * _UNITS[unit] for number, unit in parts), Fraction(0))
