# SPDX-License-Identifier: Apache-2.0
"""Events on the plugin's Node, as `kubectl describe node` shows them.

Their rate is limited: an event that repeats within five minutes is counted, and the count is added
to the next one; at most ten events are created in a minute.
"""

from __future__ import annotations

import time
import uuid
from datetime import datetime, timezone
from functools import partial

from gpuhook.device_plugin import daemon_thread
from gpuhook.device_plugin.api_server.client import Purpose, is_forbidden
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuhook.device_plugin.api_server.client import ApiServer

COMPONENT = "gpuhook-device-plugin"
QUIET_SECONDS = 300.0
_PER_MINUTE = 10
_KEYS = 256
_MAX_MESSAGE = 1024  # the API server refuses longer ones
_PATH = "/api/v1/namespaces/default/events"  # for objects without a namespace
_PURPOSE = Purpose("create", "events", "events on the node")


class NodeEvents:
    """Creates events on one node. `failed` is called with the first of consecutive faults."""

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
        self._sent: dict[tuple[str, str], tuple[float, int]] = {}
        self._minute: list[float] = []

    async def create(self, kind: str, reason: str, key: str, message: str) -> bool:
        """Create an event unless one of the same reason and key was created recently.

        `kind` is NORMAL or WARNING of notifier.py, `reason` a word ("GpuUnhealthy"), `key` its
        subject (a GPU's UUID). Returns whether it was created. Never raises a GpuhookError.
        """
        if self._is_off:
            return False
        suppressed = self._suppressed(reason, key)
        if suppressed is None:
            return False
        body = event(self._node, kind, reason, _with_count(message, suppressed))
        try:
            create = partial(self._server.create, _PATH, body, _PURPOSE)
            await daemon_thread.begin(create, "gpuhook-events")
        except GpuhookError as error:
            self._is_off = is_forbidden(error)
            if not self._has_failed:
                self._failed(error)
            self._has_failed = True
            self._sent.pop((reason, key), None)
            return False
        self._has_failed = False
        return True

    def _suppressed(self, reason: str, key: str) -> int | None:
        """Return how many equal events were suppressed before this one, None to suppress it."""
        now = self._clock()
        last, count = self._sent.get((reason, key), (now - QUIET_SECONDS, 0))
        self._minute = [then for then in self._minute if then > now - 60]
        if now - last < QUIET_SECONDS or len(self._minute) >= _PER_MINUTE:
            self._sent[reason, key] = (last, count + 1)
            self._trim(now)
            return None
        self._minute.append(now)
        self._sent[reason, key] = (now, 0)
        self._trim(now)
        return count

    def _trim(self, now: float) -> None:
        """Bound the table: remove expired entries first, then the oldest."""
        if len(self._sent) <= _KEYS:
            return
        recent = {k: v for k, v in self._sent.items() if now - v[0] < QUIET_SECONDS}
        self._sent = dict(list(recent.items())[-_KEYS:])


def event(node: str, kind: str, reason: str, message: str) -> dict[str, Any]:
    """Return the Event object (core/v1) on a node, as of now.

    The uid of the involved node is its name, as in the kubelet's events: kubectl selects by that.
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


def _with_count(message: str, suppressed: int) -> str:
    more = f" ({suppressed} similar events suppressed)" if suppressed else ""
    limit = _MAX_MESSAGE - len(more.encode())
    data = message.encode()
    if len(data) > limit:
        message = data[: limit - 3].decode("utf-8", "ignore") + "..."
    return message + more
