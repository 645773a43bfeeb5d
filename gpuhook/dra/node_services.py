# SPDX-License-Identifier: Apache-2.0
"""What all drivers of a node use: modes of devices, statuses of claims, the guard and metrics."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from gpuhook.device_plugin import daemon_thread
from gpuhook.device_plugin.gpu_policies import saved_policies
from gpuhook.device_plugin.gpu_policies.policy_service import PolicyService
from gpuhook.device_plugin.guard.guard_service import GuardService
from gpuhook.device_plugin.metrics.metrics_service import MetricsService
from gpuhook.device_plugin.mps.mps_service import MpsService
from gpuhook.dra.claims.claim_status import ClaimStatus
from gpuhook.dra.claims.settings.device_modes import DeviceModes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gpuhook.device_plugin.api_server.client import ApiServer
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.device_plugin.metrics.counters import Counters
    from gpuhook.device_plugin.node_snapshot import NodeSnapshot
    from gpuhook.device_plugin.notifier import Notifier
    from gpuhook.dra.claims.settings.device_share import DeviceShare
    from gpuhook.dra.pool.sharing_form import SharingForms
    from gpuhook.errors import GpuhookError


class NodeServices:
    """The services of a node. `held` returns the shares of all prepared claims."""

    def __init__(
        self,
        launch: Launch,
        configuration: Configuration,
        notifier: Notifier,
        counters: Counters,
        server: ApiServer,
        *,
        held: Callable[[], Iterable[DeviceShare]],
    ) -> None:
        policies = PolicyService(launch.host_root, saved_policies.CLAIMS_FILE)
        self._servers = MpsService()
        self.modes = DeviceModes(policies, self._servers, held)
        self.status = ClaimStatus(server)
        pods = launch.pod_resources_socket
        self._metrics = MetricsService(counters, notifier, pods, launch.host_root)
        self._guard = GuardService(
            configuration.own.guard,
            pods,
            notifier,
            counters,
            host_root=launch.host_root,
            is_this_machine=launch.inventory is None,
        )

    @property
    def has_servers(self) -> bool:
        """Whether MPS servers run, which must be started again if they die."""
        return self._servers.is_needed

    def on_poll(self) -> None:
        self._guard.on_poll()

    def update(
        self, configuration: Configuration, snapshot: NodeSnapshot, forms: SharingForms
    ) -> None:
        """Use a new state of the node for the guard."""
        self._guard.configure(configuration.own.guard)
        # The limits are those of the ledger: no unit that the kubelet allocates has one.
        libraries = {part.domain for part in snapshot.parts if part.library}
        resources = (one for one in forms.resources() if one.domain in libraries)
        self._guard.update(snapshot, tuple(replace(one, memory={}) for one in resources))

    async def update_metrics(
        self,
        configuration: Configuration,
        snapshot: NodeSnapshot,
        forms: SharingForms,
        unhealthy: Mapping[str, str],
    ) -> None:
        """Serve metrics of this state; `unhealthy` has reasons by the UUIDs of devices."""
        own, guards = configuration.own, configuration.own.guard.ends_processes
        resources = forms.resources()
        await self._metrics.update(own.metrics, snapshot, resources, unhealthy, guards=guards)

    async def set_modes(
        self, configuration: Configuration, snapshot: NodeSnapshot, forms: SharingForms
    ) -> tuple[GpuhookError, ...]:
        """Set the modes that the file and prepared claims need; return those that are not set."""
        use = partial(self.modes.use, forms, configuration.flags.mps_root, snapshot)
        return await daemon_thread.begin(use, "gpuhook-modes")

    async def end(self) -> None:
        """End guard and metrics; modes and servers remain for the containers of claims."""
        await self._guard.end()
        await self._metrics.end()
