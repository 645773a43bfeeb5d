# SPDX-License-Identifier: Apache-2.0
"""A line of the benchmarks' second table."""

from __future__ import annotations

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
