# SPDX-License-Identifier: Apache-2.0
"""The log of a command that a user runs in a terminal."""

from __future__ import annotations

from gpuhook.errors import printable
from gpuhook.host.hot.engine_log import MAX_LINE, EngineLog, print_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.errors import GpuhookError


class TerminalLog(EngineLog):
    """Prints warnings: standard error is the terminal."""

    def warning(self, error: GpuhookError) -> None:
        """Print a warning."""
        line = printable(f"{self._program}: warning {error.code}: {error.message}", MAX_LINE)
        print_error(line + "\n")
