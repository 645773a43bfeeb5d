# SPDX-License-Identifier: Apache-2.0
"""One vendor's driver on this node: its claims, its sockets, and its devices in the cluster."""

from __future__ import annotations

import asyncio
import os

from gpuhook.device_plugin import daemon_thread
from gpuhook.device_plugin.health.recovery_evidence import boot_id
from gpuhook.dra.api import dra_services
from gpuhook.dra.claims.checkpoint import recovery
from gpuhook.dra.claims.checkpoint.checkpoint_file import NAME, ClaimCheckpoint
from gpuhook.dra.claims.claim_calls import ClaimCalls
from gpuhook.dra.claims.claim_reader import ClaimReader
from gpuhook.dra.claims.claim_spec import ClaimSpecs
from gpuhook.dra.claims.plugin_holders import PluginHolders
from gpuhook.dra.claims.preparation import Preparation
from gpuhook.dra.kubelet import socket_paths
from gpuhook.dra.kubelet.driver_services import ClaimService, RegistrationService
from gpuhook.dra.kubelet.driver_sockets import DriverSockets
from gpuhook.dra.kubelet.status_service import StatusService
from gpuhook.dra.slices import published_pool
from gpuhook.dra.slices.slice_publisher import SlicePublisher
from gpuhook.host.logs import logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuhook.device_plugin.api_server.client import ApiServer
    from gpuhook.device_plugin.metrics.counters import Counters
    from gpuhook.dra.claims.driver_state import DriverState
    from gpuhook.dra.claims.settings.device_share import DeviceShare
    from gpuhook.dra.dra_options import DraLaunch
    from gpuhook.dra.health.health_stream import HealthStream
    from gpuhook.dra.node_services import NodeServices

_AFTER_BUG = 60.0  # seconds
_PUBLISHER_TIMEOUT = 1.0


class NodeDriver:
    """A driver that serves the kubelet; it is made in the event loop.

    `current` returns the node's state, and may block. `health` is the service of the devices'
    health, which is at the same socket.
    """

    def __init__(
        self,
        name: str,
        launch: DraLaunch,
        server: ApiServer,
        counters: Counters,
        current: Callable[[], DriverState],
        *,
        services: NodeServices,
        health: HealthStream,
    ) -> None:
        """Raise GH1822 if the kubelet's directories have too long paths."""
        plugin = launch.plugin
        self.name = name
        self.paths = socket_paths.socket_paths(
            os.path.join(launch.kubelet_root, "plugins"),
            os.path.join(launch.kubelet_root, "plugins_registry"),
            name,
            launch.pod_uid,
        )
        boot = boot_id(plugin.host_root) or ""
        self._checkpoint = ClaimCheckpoint(self.paths.directory, boot)
        self._specs = ClaimSpecs(plugin.cdi_directory, name, boot)
        self._reader = ClaimReader(server, name, plugin.node_name)
        self.claims = self._preparation(launch, current, services)
        self._trouble = ""
        self._mark: recovery.RunningMark | None = None
        self._publisher = SlicePublisher(server, name, plugin.node_name, logger())
        self._publishing: asyncio.Task[None] | None = None
        versions = [*map(dra_services.supported, dra_services.VERSIONS), *health.names]
        self._registration = RegistrationService(name, self.paths.service, versions, counters)
        others = (health, StatusService(self._state))
        claims = ClaimService(name, ClaimCalls(self.claims), counters, others)
        self._sockets = DriverSockets(self.paths, claims, self._registration)

    def _preparation(
        self, launch: DraLaunch, current: Callable[[], DriverState], services: NodeServices
    ) -> Preparation:
        holders = PluginHolders(launch.kubelet_root, launch.plugin.pod_resources_socket)
        return Preparation(
            self.name,
            self._reader,
            self._checkpoint,
            self._specs,
            current,
            require_free=holders.require_free,
            modes=services.modes,
            status=services.status,
        )

    @staticmethod
    def has_run(launch: DraLaunch, name: str) -> bool:
        """Return whether a driver of this name has run here: its claims may have to end."""
        return os.path.exists(os.path.join(launch.kubelet_root, "plugins", name, NAME))

    async def start(self) -> None:
        """Complete what drivers before have begun, and serve. Raises OSError and GpuhookError."""
        await daemon_thread.begin(self._recover, "gpuhook-recovery")
        await self._sockets.start()
        self._publishing = asyncio.create_task(self._publish())

    async def _publish(self) -> None:
        while True:
            try:
                await self._publisher.run()
            except Exception as error:  # a bug must not end the driver
                logger().error("failed", driver=self.name, exc_info=error)
                await asyncio.sleep(_AFTER_BUG)

    def _recover(self) -> None:
        os.makedirs(self.paths.directory, 0o750, exist_ok=True)
        self._mark = recovery.RunningMark(self._checkpoint)
        recovery.recover(
            self._checkpoint, self._specs, self._reader.exists, is_alone=self._mark.is_alone
        )
        self._mark.share()

    def shares(self) -> list[DeviceShare]:
        """Return the shares of the claims in the checkpoint; raises OSError and DamagedError."""
        return [share for one in self._checkpoint.claims().values() for share in one.shares]

    async def update(self, state: DriverState) -> None:
        """Use a new state of the node for claims, and for the devices in the cluster."""
        self._publisher.publish(state.pool)
        if state.trouble not in ("", self._trouble):
            logger().warning("no device can be used", driver=self.name, reason=state.trouble)
        self._trouble = state.trouble
        await daemon_thread.begin(lambda: self.claims.refresh(state), "gpuhook-specs")

    def _state(self) -> dict[str, Any]:
        """Return the state for `gpuhook dra status`."""
        return {
            "registration": self._registration.outcome,
            **published_pool.document(self._publisher),
        }

    async def end(self) -> None:
        """Stop serving. Claims and the devices in the cluster remain for the next driver."""
        await self._sockets.end()
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.wait({self._publishing}, timeout=_PUBLISHER_TIMEOUT)
        if self._mark is not None:
            self._mark.close()
