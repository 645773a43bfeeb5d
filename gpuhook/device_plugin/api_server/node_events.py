# SPDX-License-Identifier: Apache-2.0
"""Events on the plugin's own Node: what `kubectl describe node` tells of its GPUs.

Few of them: the same news again within five minutes is counted and told with the next one, and
there are never more than ten in a minute, whatever the GPUs do.
"""

from __future__ import annotations

import time
import uuid
from datetime import datetime, timezone

from gpuhook.device_plugin.api_server.client import Purpose, is_forbidden

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuhook.device_plugin.api_server.client import ApiServer
    from gpuhook.errors import GpuhookError

COMPONENT = "gpuhook-device-plugin"
QUIET_SECONDS = 300.0
_PER_MINUTE = 10
_KEYS = 256
_MAX_MESSAGE = 1024  # the API server refuses longer ones
_PATH = "/api/v1/namespaces/default/events"  # where events of what has no namespace belong
_PURPOSE = Purpose("create", "events", "events on the node")


class NodeEvents:
    """Creates events on one node. `failed` is called with the first fault of a row of faults."""

    def __init__(
        self,
        server: ApiServer,
        node: str,
        failed: Callable[[GpuhookError], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._node = node
        self._failed = failed
        self._clock = clock
        self._is_off = False
        self._has_failed = False
        self._told: dict[tuple[str, str], tuple[float, int]] = {}
        self._minute: list[float] = []

    async def tell(self, kind: str, reason: str, key: str, message: str) -> bool:
        """Create an event unless one of the same reason and key was created just now.

        `kind` is NORMAL or WARNING of notifier.py, `reason` a word ("GpuUnhealthy"), `key` what it
        is about (a GPU's UUID). Returns whether it was created. Never raises a GpuhookError.
        """
        from gpuhook.device_plugin import daemon_thread
        from gpuhook.errors import GpuhookError

        if self._is_off:
            return False
        unsaid = self._unsaid(reason, key)
        if unsaid is None:
            return False
        body = event(self._node, kind, reason, _with_count(message, unsaid))
        try:
            created = daemon_thread.begin(
                lambda: self._server.create(_PATH, body, _PURPOSE), "gpuhook-events"
            )
            await created
        except GpuhookError as error:
            self._is_off = is_forbidden(error)
            if not self._has_failed:
                self._failed(error)
            self._has_failed = True
            self._told.pop((reason, key), None)
            return False
        self._has_failed = False
        return True

    def _unsaid(self, reason: str, key: str) -> int | None:
        """Return how often this was held back before it is told now, None to hold it back."""
        now = self._clock()
        last, held = self._told.get((reason, key), (now - QUIET_SECONDS, 0))
        self._minute = [then for then in self._minute if then > now - 60]
        if now - last < QUIET_SECONDS or len(self._minute) >= _PER_MINUTE:
            self._told[reason, key] = (last, held + 1)
            self._forget(now)
            return None
        self._minute.append(now)
        self._told[reason, key] = (now, 0)
        self._forget(now)
        return held

    def _forget(self, now: float) -> None:
        """Keep the table small: what is long past goes first, then the oldest."""
        if len(self._told) <= _KEYS:
            return
        recent = {k: v for k, v in self._told.items() if now - v[0] < QUIET_SECONDS}
        self._told = dict(list(recent.items())[-_KEYS:])


def event(node: str, kind: str, reason: str, message: str) -> dict[str, Any]:
    """Return the Event object (core/v1) on a node, as of now.

    The node's uid in it is its name, as the kubelet's own events have it: kubectl looks for that.
    """
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    name = f"{node[:230].rstrip('.-')}.{uuid.uuid4().hex[:16]}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": COMPONENT, "host": node},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def _with_count(message: str, unsaid: int) -> str:
    more = f" ({unsaid} more like it were not told)" if unsaid else ""
    room = _MAX_MESSAGE - len(more.encode())
    data = message.encode()
    if len(data) > room:
        message = data[: room - 3].decode("utf-8", "ignore") + "..."
    return message + more
