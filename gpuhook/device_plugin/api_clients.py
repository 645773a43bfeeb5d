# SPDX-License-Identifier: Apache-2.0
"""What the plugin has of the API server: a label of its node, and events on it. Both may be absent.

Without a service account's token nothing is asked of the API server, and nothing is missed.
"""

from __future__ import annotations

import asyncio
import os

from gpuhook.device_plugin.api_server.service_account import in_cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuhook.device_plugin.api_server.client import ApiServer
    from gpuhook.device_plugin.api_server.node_events import NodeEvents
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.errors import GpuhookError

_FIRST_LABEL_WITHIN = 3.0  # seconds


class Connections:
    """Speaks to the API server for the node of `launch`, if it may."""

    def __init__(self, launch: Launch, log: Any) -> None:
        # A node from --inventory is another than the one that this runs on.
        is_here = launch.inventory is None
        access = in_cluster(os.environ) if launch.node_name and is_here else None
        self._log = log
        self._launch = launch
        self.server: ApiServer | None = None
        self.events: NodeEvents | None = None
        if access is not None:
            from gpuhook.device_plugin.api_server.client import ApiServer
            from gpuhook.device_plugin.api_server.node_events import NodeEvents

            self.server = ApiServer(access)
            self.events = NodeEvents(self.server, launch.node_name, self._failed)
        is_pod = is_here and bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
        # Whether a cluster has a label of this node, and the pod has no token to read it with.
        self.lacks_label = is_pod and bool(launch.node_name) and access is None
        self.label: str | None = None
        self._known = asyncio.Event()
        self._changed: Callable[[], None] = _nobody
        self._task: asyncio.Task[None] | None = None

    async def start(self, changed: Callable[[], None]) -> None:
        """Follow the label, where it chooses the configuration, and wait for its first value.

        `changed` is called for those that follow. An API server that does not answer soon is not
        waited for: the node is served as one without the label until it does.
        """
        source = self._launch.source
        if self.server is None or not source.directory or source.name_file:
            return
        from gpuhook.device_plugin.api_server.node_label import NodeLabel

        follower = NodeLabel(
            self.server,
            self._launch.node_name,
            self._took,
            self._label_failed,
            label=self._launch.node_label,
        )
        self._task = asyncio.create_task(follower.run())
        try:
            await asyncio.wait_for(self._known.wait(), _FIRST_LABEL_WITHIN)
        except asyncio.TimeoutError:
            self._log.warning("the node's label is not known yet", label=self._launch.node_label)
        self._changed = changed

    async def end(self) -> None:
        """Follow the label no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _took(self, value: str | None) -> None:
        self.label = value
        self._known.set()
        self._changed()

    def _label_failed(self, error: GpuhookError | None) -> None:
        self._known.set()  # what cannot be known is not waited for
        if error is not None:
            self._failed(error)
        else:
            self._log.info("the API server answers again")

    def _failed(self, error: GpuhookError) -> None:
        self._log.warning(error.message, code=error.code, hint=error.hint)


def _nobody() -> None:
    return
