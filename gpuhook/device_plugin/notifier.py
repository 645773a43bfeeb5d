# SPDX-License-Identifier: Apache-2.0
"""What people should hear of: a log line, and an event on the node where one may be made."""

from __future__ import annotations

import asyncio
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine

    from gpuhook.device_plugin.api_server.node_events import NodeEvents
    from gpuhook.errors import GpuhookError

NORMAL, WARNING = "Normal", "Warning"  # the types of events


class News:
    """Tells them. `events` is None where there is no API server to speak to."""

    def __init__(self, log: Any, events: NodeEvents | None = None) -> None:
        self.log = log
        self._events = events
        self._tasks: set[asyncio.Task[object]] = set()

    def good(self, reason: str, message: str, key: str = "", **fields: object) -> None:
        """Tell what went well, or became well again. `reason` is a word ("ConfigApplied")."""
        self.log.info(message, reason=reason, **fields)
        self._event(NORMAL, reason, key, message)

    def bad(self, reason: str, message: str, key: str = "", **fields: object) -> None:
        """Tell what somebody should look at."""
        self.log.warning(message, reason=reason, **fields)
        self._event(WARNING, reason, key, message)

    def failed(self, reason: str, error: GpuhookError, key: str = "", **fields: object) -> None:
        """Tell a fault with its code and its hint."""
        self.log.warning(error.message, reason=reason, code=error.code, hint=error.hint, **fields)
        self._event(WARNING, reason, key, f"{error.code}: {error.message}; {error.hint}")

    def later(self, work: Coroutine[Any, Any, object]) -> None:
        """Do `work`, which ends in news, in the loop; nobody waits for it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def end(self, seconds: float) -> None:
        """Wait for what is on its way, and not longer."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()

    def _event(self, kind: str, reason: str, key: str, message: str) -> None:
        if self._events is not None:
            self.later(self._events.tell(kind, reason, key or reason, message))

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.log.error("news were lost", exc_info=task.exception())
