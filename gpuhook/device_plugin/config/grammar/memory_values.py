# SPDX-License-Identifier: Apache-2.0
"""The kinds of values that limit, reserve or measure device memory."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.device_plugin.config.grammar.value_kinds import ValueKind, unfit
from gpuhook.host.quantity import MEMORY, MEMORY_HINT, likely_unit, memory_bytes
from gpuhook.request.memory_request import amount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MIB = 1 << 20
FAIR, UNLIMITED = "fair", "none"  # the words for a limit
UNITS = {"GiB": 1 << 30, "MiB": MIB}  # the words for a unit
CONTEXT_MEMORY = 256 << 20  # bytes that a CUDA context with its libraries takes
MOST_MEMORY = 1 << 40  # bytes; no device has as much
_ANY = (1 << 63) - 1
_WHOLE_MIB = "the driver limits memory in MiB"


@dataclass(frozen=True, slots=True)
class MemoryValue(ValueKind):
    """An amount of memory in bytes, `least` to `most`, or one of some words with their meanings.

    Kubernetes' quantities are accepted ("512Mi", "1.5G"). `why` is the reason for the minimum.
    """

    least: int = 0
    most: int = MOST_MEMORY
    why: str = ""
    may_be_zero: bool = False
    is_whole_mib: bool = False
    words: tuple[tuple[str, str | int], ...] = ()

    metavar = "QUANTITY"

    def parse(self, value: object) -> str | int:
        known = dict(self.words)
        if isinstance(value, str) and value in known:
            return known[value]
        number = memory_bytes(value)
        if number is None:
            words = f"{', '.join(known)} or " if known else ""
            raise unfit(f"{words}an amount of memory", value, MEMORY_HINT)
        if number < self.least and not (self.may_be_zero and number == 0):
            hint = _missing_unit(value, number) or self.why
            raise unfit(f"{amount(self.least)} or more", value, hint)
        if number > self.most:
            raise unfit(f"{amount(self.most)} or less", value, "no GPU has this much memory")
        if self.is_whole_mib and number % MIB:
            raise unfit("whole MiB", value, f"write {-(-number // MIB)}Mi")
        return number

    def plain(self, value: Any) -> object:
        return next((word for word, meaning in self.words if meaning == value), value)

    def text(self, value: Any) -> str:
        return amount(value) if value else str(value)

    def schema(self) -> dict[str, object]:
        text = {"type": "string", "pattern": f"^(?:{MEMORY})$"}
        quantity: dict[str, object] = {"anyOf": [{"type": "integer", "minimum": 0}, text]}
        words = {"enum": [word for word, _ in self.words]}
        return {"anyOf": [words, quantity]} if self.words else quantity


def _missing_unit(value: object, number: int) -> str:
    """Return the hint for a bare number that is too small to be a number of bytes."""
    if not number or not str(value).isdecimal():
        return ""
    return f"a number without a unit is bytes: write {number}{likely_unit(number)}"


AMOUNT = MemoryValue(most=_ANY)
# The memory of one container: with less, its programs cannot create a CUDA context.
LIMIT = MemoryValue(CONTEXT_MEMORY, why="a CUDA context and its libraries alone need this much")
LIMIT_OR_WORD = MemoryValue(
    LIMIT.least, why=LIMIT.why, words=((FAIR, FAIR), (UNLIMITED, UNLIMITED))
)
RESERVE = MemoryValue(MIB, why=_WHOLE_MIB, may_be_zero=True)
UNIT = MemoryValue(MIB, why=_WHOLE_MIB, is_whole_mib=True, words=tuple(UNITS.items()))
