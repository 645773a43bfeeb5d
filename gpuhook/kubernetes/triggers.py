# SPDX-License-Identifier: Apache-2.0
"""Why the plugin should take another turn: reasons, collected until it takes one."""

from __future__ import annotations

import asyncio
from enum import Enum

_REST = 0.1  # seconds: what comes together is taken in one turn


class Reason(Enum):
    """What has happened, or may have."""

    STOP = "stop"
    CONFIGURATION = "configuration"  # a file has changed, SIGHUP, the node's label
    NODE = "node"  # the driver, its GPUs, their instances
    HEALTH = "health"
    DAEMON = "daemon"  # an MPS control daemon


class Triggers:
    """Reasons for a turn. `pull` is called in the event loop that waits in `next`."""

    def __init__(self) -> None:
        self._pulled: set[Reason] = set()
        self._event = asyncio.Event()

    def pull(self, *reasons: Reason) -> None:
        """Ask for a turn, soon; one that is asked for already stands."""
        self._pulled.update(reasons)
        self._event.set()

    async def next(self) -> frozenset[Reason]:
        """Wait for reasons and return all there are. What follows at once comes with them.

        Health does not wait: a pod may be on its way to a GPU that has just failed.
        """
        await self._event.wait()
        if not self._pulled <= {Reason.HEALTH, Reason.STOP}:
            await asyncio.sleep(_REST)
        self._event.clear()
        found, self._pulled = frozenset(self._pulled), set()
        return found
