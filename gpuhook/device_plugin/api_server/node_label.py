# SPDX-License-Identifier: Apache-2.0
"""A label of the plugin's own node, followed through the API server.

The label nvidia.com/device-plugin.config names the configuration that the node should have.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from gpuhook.device_plugin import daemon_thread
from gpuhook.device_plugin.api_server import node_object
from gpuhook.device_plugin.api_server.client import GoneError, is_forbidden
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gpuhook.device_plugin.api_server.client import ApiServer, Changes

CONFIG_LABEL = "nvidia.com/device-plugin.config"
WATCH_SECONDS = 300
T = TypeVar("T")
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


class NodeLabel:
    """Follows one label; run() is the task that does.

    `changed` is called in the loop with the label's value, None for a node without it: once when it
    is known, then at each change. `failed` is called with the first fault of a row of faults, and
    with None when the API server answers again.
    """

    def __init__(
        self,
        server: ApiServer,
        node: str,
        changed: Callable[[str | None], None],
        failed: Callable[[GpuhookError | None], None],
        *,
        label: str = CONFIG_LABEL,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._server = server
        self._node = node
        self._label = label
        self._changed = changed
        self._failed = failed
        self._sleep = sleep
        self._is_known = False
        self._value: str | None = None
        self._failures = 0

    async def run(self) -> None:
        """Follow the label until cancelled; returns where a permission is missing."""
        while True:
            try:
                await self._follow()
            except GoneError:  # the server forgot the version: the node is read anew
                await self._sleep(FIRST_PAUSE)
            except GpuhookError as error:
                if self._failures == 0:
                    self._failed(error)
                if is_forbidden(error):
                    return
                await self._sleep(min(FIRST_PAUSE * 2 ** min(self._failures, 16), LONGEST_PAUSE))
                self._failures += 1

    async def _follow(self) -> None:
        """Read the label, and watch it from then on, watch after watch; raises what ends that."""
        labels, version = await _in_thread(lambda: node_object.labels(self._server, self._node))
        self._tell(labels)
        while True:
            version = await self._watched(await self._watch(version), version)
            self._answered()
            await self._sleep(FIRST_PAUSE)  # in case the server ends each watch at once

    async def _watch(self, version: str) -> Changes:
        server, node = self._server, self._node
        return await _in_thread(lambda: node_object.watch(server, node, version, WATCH_SECONDS))

    async def _watched(self, changes: Changes, version: str) -> str:
        """Take the changes until they end; returns the resourceVersion to go on from."""
        try:
            while (change := await _in_thread(changes.next)) is not None:
                self._answered()
                found = change.get("object")
                if not isinstance(found, dict):
                    continue
                version = node_object.version_of(found) or version
                if change.get("type") in ("ADDED", "MODIFIED"):
                    self._tell(node_object.labels_of(found))
        finally:
            changes.interrupt()  # cancelled: the thread still waits in next()
            changes.close()
        return version

    def _answered(self) -> None:
        if self._failures:
            self._failures = 0
            self._failed(None)

    def _tell(self, labels: dict[str, str]) -> None:
        value = labels.get(self._label)
        if not self._is_known or value != self._value:
            self._is_known, self._value = True, value
            self._changed(value)


async def _in_thread(call: Callable[[], T]) -> T:
    """Return what `call` returns; a server that never ends its answer ends with the process."""
    return await daemon_thread.begin(call, "gpuhook-node-label")
