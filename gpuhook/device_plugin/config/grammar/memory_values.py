# SPDX-License-Identifier: Apache-2.0
"""The kinds of values that say how much of a device's memory somebody may have."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.device_plugin.config.configuration import (
    CONTEXT_MEMORY,
    FAIR,
    MOST_MEMORY,
    UNITS,
    UNLIMITED,
)
from gpuhook.device_plugin.config.grammar.value_kinds import (
    Quantity,
    UnfitError,
    ValueKind,
    Whole,
    shown,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MIB = 1 << 20
_MEANT_GIB = 256  # a smaller number without a unit was meant as GiB
_SUFFIXES = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", MIB), ("Ki", 1 << 10))


def amount(number: int) -> str:
    """Return bytes as a sentence names them.

    >>> amount(512 << 20)
    '512Mi'
    """
    for suffix, scale in _SUFFIXES:
        if number and number % scale == 0:
            return f"{number // scale}{suffix}"
    return f"{number} bytes"


@dataclass(frozen=True, slots=True)
class MemoryValue(ValueKind):
    """An amount of a device's memory in bytes, `least` and more; `why` not less.

    Where it `may_be_zero`, 0 is none at all.
    """

    least: int = 0
    why: str = ""
    may_be_zero: bool = False

    @property
    def metavar(self) -> str:
        return "QUANTITY"

    def of(self, value: object) -> int:
        number = Quantity().of(value)
        if number < self.least and not (self.may_be_zero and number == 0):
            raise UnfitError(
                f"must be {amount(self.least)} or more, found {shown(value)}",
                _unit_missing(value, number) or self.why,
            )
        if number > MOST_MEMORY:
            raise UnfitError(
                f"must be {amount(MOST_MEMORY)} or less, found {shown(value)}",
                "no GPU has as much memory",
            )
        return number

    def schema(self) -> dict[str, object]:
        return Quantity().schema()


def _unit_missing(value: object, number: int) -> str:
    """Return the hint for a number without a unit that is too small, as it stands, to be meant."""
    if not number or not str(value).isdecimal():
        return ""
    unit = "Gi" if number < _MEANT_GIB else "Mi"
    return f"a number without a unit is bytes: write {number}{unit}"


# What one container may have: with less, none of its programs gets as far as to allocate.
LIMIT = MemoryValue(CONTEXT_MEMORY, "a CUDA context with its libraries takes as much by itself")


@dataclass(frozen=True, slots=True)
class LimitValue(ValueKind):
    """What one replica may have of a device's memory: its fair share, any, or so many bytes."""

    def of(self, value: object) -> str | int:
        if value in (FAIR, UNLIMITED) and isinstance(value, str):
            return value
        try:
            Quantity().of(value)
        except UnfitError as error:
            raise UnfitError(
                f"must be {FAIR}, {UNLIMITED} or an amount of memory, found {shown(value)}",
                error.hint,
            ) from error
        return LIMIT.of(value)

    def schema(self) -> dict[str, object]:
        return {"anyOf": [{"enum": [FAIR, UNLIMITED]}, LIMIT.schema()]}


@dataclass(frozen=True, slots=True)
class Replicas(Whole):
    """How many containers share a device; an amount of memory in its place is told its key."""

    def of(self, value: object) -> int:
        if isinstance(value, str) and not value.isdecimal():
            try:
                Quantity().of(value)
            except UnfitError:
                return Whole.of(self, value)
            raise UnfitError(
                f"must be an integer, found {shown(value)}",
                f"for as many replicas of that size as fit: `replicas: {{memory: {value}}}`",
            )
        return Whole.of(self, value)


@dataclass(frozen=True, slots=True)
class UnitValue(ValueKind):
    """The size of one unit of memory in bytes: GiB, MiB, or an amount of whole MiB."""

    def of(self, value: object) -> int:
        if isinstance(value, str) and value in UNITS:
            return UNITS[value]
        try:
            Quantity().of(value)
        except UnfitError as error:
            raise UnfitError(
                f"must be {', '.join(UNITS)} or an amount of memory, found {shown(value)}",
                error.hint,
            ) from error
        number = MemoryValue(MIB, "memory is counted in MiB").of(value)
        if number % MIB:
            raise UnfitError(
                f"must be whole MiB, found {shown(value)}", f"write {-(-number // MIB)}Mi"
            )
        return number

    def plain(self, value: Any) -> object:
        return next((name for name, size in UNITS.items() if size == value), value)

    def schema(self) -> dict[str, object]:
        return {"anyOf": [{"enum": list(UNITS)}, Quantity().schema()]}
