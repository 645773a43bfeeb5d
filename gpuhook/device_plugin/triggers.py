# SPDX-License-Identifier: Apache-2.0
"""Why the plugin should take another turn: reasons, collected until it takes one."""

from __future__ import annotations

import asyncio
from enum import Enum

_REST = 0.1  # seconds: what comes together is taken in one turn


class Reason(Enum):
    """What has happened, or may have."""

    STOP = "stop"
    ASKED = "asked"  # SIGHUP, beside the two that follow
    CONFIGURATION = "configuration"  # a file has changed, SIGHUP, the node's label
    NODE = "node"  # the driver, its GPUs, their instances
    HEALTH = "health"
    DAEMON = "daemon"  # an MPS control daemon


_URGENT = frozenset({Reason.HEALTH, Reason.STOP})


class Triggers:
    """Reasons for a turn. `pull` is called in the event loop that waits in `next`."""

    def __init__(self) -> None:
        self._pulled: set[Reason] = set()
        self._event = asyncio.Event()
        self._is_urgent = asyncio.Event()

    def pull(self, *reasons: Reason) -> None:
        """Ask for a turn, soon; one that is asked for already stands."""
        self._pulled.update(reasons)
        self._event.set()
        if _URGENT & self._pulled:
            self._is_urgent.set()

    async def next(self) -> frozenset[Reason]:
        """Wait for reasons and return all there are. What follows at once comes with them.

        Health does not wait: a pod may be on its way to a GPU that has just failed.
        """
        await self._event.wait()
        if not self._pulled <= _URGENT:
            await asyncio.sleep(_REST)
        self._event.clear()
        self._is_urgent.clear()
        found, self._pulled = frozenset(self._pulled), set()
        return found

    async def urgent(self) -> frozenset[Reason]:
        """Wait for what cannot wait for the end of a turn, and return it; STOP stands after it."""
        await self._is_urgent.wait()
        found = _URGENT & self._pulled
        self._pulled.discard(Reason.HEALTH)
        if not _URGENT & self._pulled:
            self._is_urgent.clear()
        if not self._pulled:
            self._event.clear()
        return found
