# SPDX-License-Identifier: Apache-2.0
"""A line of the benchmarks' second table, and the timing of repeated calls."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One line: what was measured, its unit, and its upper limit, if any."""

    what: str
    measured: float
    unit: str
    budget: float | None = None

    @property
    def met(self) -> str:
        """Return "yes" or "NO", "" without a limit."""
        return "" if self.budget is None else "yes" if self.measured <= self.budget else "NO"

    def row(self) -> tuple[str, str, str, str]:
        """Return the line of a table."""
        budget = "" if self.budget is None else f"<= {self.budget:g} {self.unit}"
        return self.what, f"{self.measured:.1f} {self.unit}", budget, self.met


def milliseconds(calls: int, call: Callable[[], object]) -> list[float]:
    """Return the milliseconds of each of so many calls, one after the other."""
    took = []
    for _ in range(calls):
        begun = time.perf_counter()
        call()
        took.append((time.perf_counter() - begun) * 1000)
    return took


def percentiles(
    what: str, took: Sequence[float], half: float | None = None, most: float | None = None
) -> Iterator[Figure]:
    """Yield the median and the 99th percentile, with their budgets."""
    cuts = statistics.quantiles(took, n=100)
    yield Figure(f"{what}, p50", cuts[49], "ms", half)
    yield Figure(f"{what}, p99", cuts[98], "ms", most)
