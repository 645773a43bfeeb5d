# SPDX-License-Identifier: Apache-2.0
"""The log of a command that shows faults and warnings in its own output."""

from __future__ import annotations

from gpuhook.host.hot.engine_log import EngineLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.errors import GpuhookError


class KeptLog(EngineLog):
    """A log that keeps reports and prints none."""

    def __init__(self) -> None:
        super().__init__("gpuhook")
        self.failures: list[GpuhookError] = []

    def failure(self, error: GpuhookError) -> None:
        """Keep a fault."""
        self.failures.append(error)

    def warning(self, error: GpuhookError) -> None:
        """Keep a warning."""
        self.warnings.append(error)
