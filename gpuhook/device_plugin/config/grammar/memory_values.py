# SPDX-License-Identifier: Apache-2.0
"""The kinds of values that limit, reserve or count device memory."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.device_plugin.config.grammar.value_kinds import Quantity, UnfitError, Whole, unfit
from gpuhook.host.quantity import MEMORY_HINT, likely_unit, memory_bytes
from gpuhook.request.memory_text import amount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MIB = 1 << 20
FAIR, UNLIMITED = "fair", "none"  # the words for a limit
UNITS = {"GiB": 1 << 30, "MiB": MIB}  # the words for a unit
CONTEXT_MEMORY = 256 << 20  # bytes that a CUDA context with its libraries takes
MOST_MEMORY = 1 << 40  # bytes; no device has as much
_WHOLE_MIB = "the driver limits memory in MiB"


@dataclass(frozen=True, slots=True)
class MemoryValue(Quantity):
    """An amount of device memory in bytes, `least` or more; `why` is the reason for the minimum."""

    least: int = 0
    why: str = ""
    may_be_zero: bool = False

    def of(self, value: object) -> int:
        number = Quantity().of(value)
        if number < self.least and not (self.may_be_zero and number == 0):
            hint = _missing_unit(value, number) or self.why
            raise unfit(f"{amount(self.least)} or more", value, hint)
        if number > MOST_MEMORY:
            raise unfit(f"{amount(MOST_MEMORY)} or less", value, "no GPU has as much memory")
        return number

    def text(self, value: Any) -> str:
        return amount(value)


def _missing_unit(value: object, number: int) -> str:
    """Return the hint for a bare number that is too small to be a number of bytes."""
    if not number or not str(value).isdecimal():
        return ""
    return f"a number without a unit is bytes: write {number}{likely_unit(number)}"


# The memory of one container: with less, its programs cannot create a CUDA context.
LIMIT = MemoryValue(CONTEXT_MEMORY, "a CUDA context with its libraries takes as much by itself")
RESERVE = MemoryValue(MIB, _WHOLE_MIB, may_be_zero=True)


@dataclass(frozen=True, slots=True)
class LimitValue(Quantity):
    """The memory limit of one replica: fair, none, or bytes."""

    def of(self, value: object) -> str | int:  # type: ignore[override] # wider on purpose
        if value in (FAIR, UNLIMITED) and isinstance(value, str):
            return value
        if memory_bytes(value) is None:
            raise unfit(f"{FAIR}, {UNLIMITED} or an amount of memory", value, MEMORY_HINT)
        return LIMIT.of(value)

    def schema(self) -> dict[str, object]:
        return {"anyOf": [{"enum": [FAIR, UNLIMITED]}, LIMIT.schema()]}


@dataclass(frozen=True, slots=True)
class Replicas(Whole):
    """The number of containers that share a device; the hint for an amount names its key."""

    def of(self, value: object) -> int:
        try:
            return Whole.of(self, value)
        except UnfitError as error:
            is_amount = isinstance(value, str) and not value.isdecimal()
            if is_amount and memory_bytes(value) is not None:
                error.hint = f"for replicas of that size write `replicas: {{memory: {value}}}`"
            raise


@dataclass(frozen=True, slots=True)
class UnitValue(Quantity):
    """The size of one memory unit in bytes: GiB, MiB, or an amount of whole MiB."""

    def of(self, value: object) -> int:
        if isinstance(value, str) and value in UNITS:
            return UNITS[value]
        if memory_bytes(value) is None:
            raise unfit(f"{', '.join(UNITS)} or an amount of memory", value, MEMORY_HINT)
        number = MemoryValue(MIB, _WHOLE_MIB).of(value)
        if number % MIB:
            raise unfit("whole MiB", value, f"write {-(-number // MIB)}Mi")
        return number

    def plain(self, value: Any) -> object:
        return next((name for name, size in UNITS.items() if size == value), value)

    def schema(self) -> dict[str, object]:
        return {"anyOf": [{"enum": list(UNITS)}, Quantity().schema()]}
