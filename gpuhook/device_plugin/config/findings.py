# SPDX-License-Identifier: Apache-2.0
"""Findings about a configuration: errors and warnings with their places."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.errors import printable

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True, slots=True)
class ConfigFinding:
    """An error or a warning. The first line and column are 1; 0 is no line.

    `source` is a file, "the environment variable X" or "--option"; `path` is the key,
    "sharing.timeSlicing.resources[0].replicas", or "" for the whole file.
    """

    severity: str  # ERROR or WARNING
    path: str
    line: int
    column: int
    message: str
    hint: str = ""
    source: str = ""

    @property
    def place(self) -> str:
        """The place: `file:line:column`, or the source alone if it has no lines."""
        source = printable(self.source)
        return f"{source}:{self.line}:{self.column}" if self.line else source

    def __str__(self) -> str:
        parts = (self.place, self.severity, printable(self.path), self.message)
        return ": ".join(part for part in parts if part)


def errors(findings: tuple[ConfigFinding, ...]) -> tuple[ConfigFinding, ...]:
    """Return the findings that make a configuration unusable."""
    return tuple(finding for finding in findings if finding.severity == ERROR)
