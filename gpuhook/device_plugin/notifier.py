# SPDX-License-Identifier: Apache-2.0
"""Reports to people: a log line, and an event on the node if the plugin has the permission."""

from __future__ import annotations

import asyncio
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine

    from gpuhook.device_plugin.api_server.node_events import NodeEvents
    from gpuhook.errors import GpuhookError

NORMAL, WARNING = "Normal", "Warning"  # the types of events


class Notifier:
    """Writes log lines and events. `events` is None without an API server.

    `reason` is the reason of the event ("ConfigApplied"), `key` what it is about, "" for the reason
    alone: an event of the same reason and key is not repeated soon.
    """

    def __init__(self, log: Any, events: NodeEvents | None = None) -> None:
        self.log = log
        self._events = events
        self._tasks: set[asyncio.Task[object]] = set()

    def info(self, reason: str, message: str, key: str = "", **fields: object) -> None:
        """Report a success or a recovery."""
        self.log.info(message, reason=reason, **fields)
        self._event(NORMAL, reason, key, message)

    def warn(self, reason: str, message: str, key: str = "", **fields: object) -> None:
        self.log.warning(message, reason=reason, **fields)
        self._event(WARNING, reason, key, message)

    def report_fault(
        self, reason: str, error: GpuhookError, key: str = "", **fields: object
    ) -> None:
        """Report a fault with its code and hint."""
        self.log.warning(error.message, reason=reason, code=error.code, hint=error.hint, **fields)
        self._event(WARNING, reason, key, f"{error.code}: {error.message}; {error.hint}")

    def schedule(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine that ends in a report, in the background."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    async def end(self, seconds: float) -> None:
        """Wait up to `seconds` for background work, then cancel it."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()

    def _event(self, kind: str, reason: str, key: str, message: str) -> None:
        if self._events is not None:
            self.schedule(self._events.create(kind, reason, key or reason, message))

    def _finish(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.log.error("a report was lost", exc_info=task.exception())
