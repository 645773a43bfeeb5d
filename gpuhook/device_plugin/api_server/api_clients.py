# SPDX-License-Identifier: Apache-2.0
"""The plugin's clients of the API server: the label of its node, and events on the node.

Both are optional. Without a service account's token there are no clients, and no warning.
"""

from __future__ import annotations

import asyncio
import os

from gpuhook.device_plugin.api_server.service_account import SERVICE_ACCOUNT, in_cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuhook.device_plugin.api_server.client import ApiServer
    from gpuhook.device_plugin.api_server.node_events import NodeEvents
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.errors import GpuhookError

_LABEL_TIMEOUT = 3.0  # seconds


class ApiClients:
    """The clients for the node of `launch`; `server` and `events` are None without access."""

    def __init__(self, launch: Launch, log: Any, directory: str = SERVICE_ACCOUNT) -> None:
        """Find the API server; `directory` has the token of the service account."""
        # A node from --inventory is not the node that this process runs on.
        is_here = launch.inventory is None
        access = in_cluster(os.environ, directory) if launch.node_name and is_here else None
        self._log = log
        self._launch = launch
        self.server: ApiServer | None = None
        self.events: NodeEvents | None = None
        if access is not None:
            from gpuhook.device_plugin.api_server.client import ApiServer
            from gpuhook.device_plugin.api_server.node_events import NodeEvents

            self.server = ApiServer(access)
            self.events = NodeEvents(self.server, launch.node_name, self._report)
        is_pod = is_here and bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
        # The node may have a label, and the pod has no token to read it.
        self.lacks_label = is_pod and bool(launch.node_name) and access is None
        self.label: str | None = None
        self._is_known = asyncio.Event()
        self._changed: Callable[[], None] = lambda: None
        self._task: asyncio.Task[None] | None = None

    async def start(self, changed: Callable[[], None]) -> None:
        """Follow the label if it selects the configuration, and wait for its first value.

        `changed` is called for later values. If the API server does not answer in time, the node
        is treated as one without the label until it does.
        """
        source = self._launch.source
        if self.server is None or not source.directory or source.name_file:
            return
        from gpuhook.device_plugin.api_server.node_label import NodeLabel

        follower = NodeLabel(
            self.server,
            self._launch.node_name,
            self._set_label,
            self._on_label_error,
            label=self._launch.node_label,
        )
        self._task = asyncio.create_task(follower.run())
        try:
            await asyncio.wait_for(self._is_known.wait(), _LABEL_TIMEOUT)
        except asyncio.TimeoutError:
            self._log.warning("the node's label is not known yet", label=self._launch.node_label)
        self._changed = changed

    async def end(self) -> None:
        """Stop following the label."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _set_label(self, value: str | None) -> None:
        self.label = value
        self._is_known.set()
        self._changed()

    def _on_label_error(self, error: GpuhookError | None) -> None:
        self._is_known.set()  # do not wait for an unreadable label
        if error is not None:
            self._report(error)
        else:
            self._log.info("the API server answers again")

    def _report(self, error: GpuhookError) -> None:
        self._log.warning(error.message, code=error.code, hint=error.hint)
