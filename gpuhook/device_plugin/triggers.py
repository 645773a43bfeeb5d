# SPDX-License-Identifier: Apache-2.0
"""The reasons for the plugin's next turn, collected until the turn starts."""

from __future__ import annotations

import asyncio
import signal
from enum import Enum

_SETTLE = 0.1  # seconds; events that arrive together cause one turn


class Reason(Enum):
    """What has changed, or may have changed."""

    STOP = "stop"
    RELOAD = "reload"  # SIGHUP; CONFIGURATION and NODE come with it
    CONFIGURATION = "configuration"  # a configuration file, SIGHUP, the node's label
    NODE = "node"  # the driver, its GPUs, their instances
    HEALTH = "health"
    DAEMON = "daemon"  # an MPS control daemon


_URGENT = frozenset({Reason.HEALTH, Reason.STOP})


class Triggers:
    """Pending reasons. `pull` must be called in the event loop that waits in `next`."""

    def __init__(self) -> None:
        self._pulled: set[Reason] = set()
        self._event = asyncio.Event()
        self._is_urgent = asyncio.Event()

    def pull(self, *reasons: Reason) -> None:
        """Request a turn for these reasons; a pending reason is kept once."""
        self._pulled.update(reasons)
        self._event.set()
        if _URGENT & self._pulled:
            self._is_urgent.set()

    def handle_signals(self) -> None:
        """Let signals request turns: PID 1 of a container ignores signals without a handler."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            loop.add_signal_handler(number, self.pull, Reason.STOP)
        reload = (Reason.RELOAD, Reason.CONFIGURATION, Reason.NODE)
        loop.add_signal_handler(signal.SIGHUP, self.pull, *reload)

    async def next(self) -> frozenset[Reason]:
        """Wait for a reason and return all pending ones, with those of the next 0.1 seconds.

        Health is returned at once: a pod may be on its way to a GPU that has just failed.
        """
        await self._event.wait()
        if not self._pulled <= _URGENT:
            await asyncio.sleep(_SETTLE)
        self._event.clear()
        self._is_urgent.clear()
        reasons, self._pulled = frozenset(self._pulled), set()
        return reasons

    async def urgent(self) -> frozenset[Reason]:
        """Wait for reasons that interrupt a turn, and return them. STOP remains pending."""
        await self._is_urgent.wait()
        reasons = _URGENT & self._pulled
        self._pulled.discard(Reason.HEALTH)
        if not _URGENT & self._pulled:
            self._is_urgent.clear()
        if not self._pulled:
            self._event.clear()
        return reasons
