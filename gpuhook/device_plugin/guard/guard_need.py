# SPDX-License-Identifier: Apache-2.0
"""Whether there is anybody to watch, told without what that takes: most nodes never load it."""

from __future__ import annotations

import os

from gpuhook.device_plugin.guard import ledger_limits
from gpuhook.host.hot import state
from gpuhook.memory_limits import guard_state


def is_needed() -> bool:
    """Return whether the ledger has a limit that no driver holds, or there are marks of before."""
    return os.path.exists(os.path.join(state.directory(), guard_state.FILE)) or any(
        hard is not None for entry in ledger_limits.read() for hard in entry.limits.values()
    )
