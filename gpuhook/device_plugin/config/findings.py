# SPDX-License-Identifier: Apache-2.0
"""What is found wrong with a configuration: each thing with the place where it is written."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.errors import printable

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True, slots=True)
class ConfigFinding:
    """One thing that is wrong, or will surprise. Lines and columns count from 1; 0 is no line.

    `source` is a file, "the environment variable X" or "--option"; `path` is the key,
    "sharing.timeSlicing.resources[0].replicas", "" for the whole.
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
        """Return where it is: `file:line:column`, or the source alone where there are no lines."""
        source = printable(self.source)
        return f"{source}:{self.line}:{self.column}" if self.line else source

    def __str__(self) -> str:
        parts = (self.place, self.severity, printable(self.path), self.message)
        return ": ".join(part for part in parts if part)


def errors(findings: tuple[ConfigFinding, ...]) -> tuple[ConfigFinding, ...]:
    """Return the findings that make a configuration unusable."""
    return tuple(finding for finding in findings if finding.severity == ERROR)
