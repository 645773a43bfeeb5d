# SPDX-License-Identifier: Apache-2.0
"""The labels of the plugin's node in the API server: read, set, and one that is followed.

The label nvidia.com/device-plugin.config names the node's configuration.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar
from urllib.parse import quote

from gpuhook.device_plugin import daemon_thread
from gpuhook.device_plugin.api_server.client import METADATA_ONLY, GoneError, Purpose, is_forbidden
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any

    from gpuhook.device_plugin.api_server.client import ApiServer, Changes

CONFIG_LABEL = "nvidia.com/device-plugin.config"
WATCH_SECONDS = 300
T = TypeVar("T")
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds
_READ = Purpose("get", "nodes", "the node's label that selects a configuration")
_WATCH = Purpose("watch", "nodes", "the node's label that selects a configuration")
_LABEL = Purpose("patch", "nodes", "feature labels without node feature discovery")


class NodeLabel:
    """Follows one label in the task run().

    `changed` is called in the loop with the first value of the label and with each new one, None
    for a node without it. `failed` is called with the first of consecutive faults, and with None
    when the API server answers again.
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
        """Follow the label until cancelled; returns if a permission is missing."""
        while True:
            try:
                await self._follow()
            except GoneError:  # the version is too old: read the node again
                await self._sleep(FIRST_PAUSE)
            except GpuhookError as error:
                if self._failures == 0:
                    self._failed(error)
                if is_forbidden(error):
                    return
                await self._sleep(min(FIRST_PAUSE * 2 ** min(self._failures, 16), LONGEST_PAUSE))
                self._failures += 1

    async def _follow(self) -> None:
        """Read the label, then watch it with one watch after another."""
        labels, version = await _in_thread(lambda: read_labels(self._server, self._node))
        self._set_labels(labels)
        while True:
            version = await self._follow_changes(await self._watch(version), version)
            self._report_answer()
            await self._sleep(FIRST_PAUSE)  # in case the server ends each watch at once

    async def _watch(self, version: str) -> Changes:
        server, node = self._server, self._node
        return await _in_thread(lambda: watch_node(server, node, version, WATCH_SECONDS))

    async def _follow_changes(self, changes: Changes, version: str) -> str:
        """Apply the changes of a watch until its end; returns the last resourceVersion."""
        try:
            while (change := await _in_thread(changes.next)) is not None:
                self._report_answer()
                node = change.get("object")
                if not isinstance(node, dict):
                    continue
                version = _version_of(node) or version
                if change.get("type") in ("ADDED", "MODIFIED"):
                    self._set_labels(_labels_of(node))
        finally:
            changes.interrupt()  # after a cancellation the thread still waits in next()
            changes.close()
        return version

    def _report_answer(self) -> None:
        if self._failures:
            self._failures = 0
            self._failed(None)

    def _set_labels(self, labels: dict[str, str]) -> None:
        value = labels.get(self._label)
        if not self._is_known or value != self._value:
            self._is_known, self._value = True, value
            self._changed(value)


async def _in_thread(call: Callable[[], T]) -> T:
    """Return the result of `call`; an answer without end does not keep the process alive."""
    return await daemon_thread.begin(call, "gpuhook-node-label")


def _path(node: str) -> str:
    return f"/api/v1/nodes/{quote(node, safe='')}"


def read_labels(server: ApiServer, node: str) -> tuple[dict[str, str], str]:
    """Return the labels of a node and their resourceVersion. Raises GH1862 to GH1864."""
    metadata = server.get(_path(node), _READ, accept=METADATA_ONLY)
    return _labels_of(metadata), _version_of(metadata)


def watch_node(server: ApiServer, node: str, version: str, seconds: int) -> Changes:
    """Return the changes of a node since `version`. Raises GoneError, GH1862 to GH1864."""
    query = {
        "fieldSelector": f"metadata.name={node}",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
    }
    return server.watch("/api/v1/nodes", _WATCH, query, seconds)


def set_labels(server: ApiServer, node: str, changes: Mapping[str, str | None]) -> dict[str, str]:
    """Set labels of a node, None removes one, and return all. Raises GH1862 to GH1864."""
    return _labels_of(server.patch(_path(node), {"metadata": {"labels": dict(changes)}}, _LABEL))


def _labels_of(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of any object, without values that are not text."""
    labels = _metadata(document).get("labels")
    if not isinstance(labels, dict):
        return {}
    return {name: value for name, value in labels.items() if isinstance(value, str)}


def _version_of(document: Mapping[str, Any]) -> str:
    """Return the resourceVersion of any object, "" without one."""
    return str(_metadata(document).get("resourceVersion") or "")


def _metadata(document: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = document.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
