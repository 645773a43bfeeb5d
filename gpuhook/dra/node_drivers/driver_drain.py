# SPDX-License-Identifier: Apache-2.0
"""Ends the prepared claims of this node, so that its drivers can be uninstalled.

The kubelet keeps a pod that ends until the driver has answered for its claims, each minute again.
If the driver no longer runs, the drain answers in its place.
"""

from __future__ import annotations

import asyncio
from functools import partial

from gpuhook.device_plugin import daemon_thread, node_snapshot
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.gpu_policies import saved_policies
from gpuhook.device_plugin.gpu_policies.policy_service import PolicyService
from gpuhook.device_plugin.health.recovery_evidence import boot_id
from gpuhook.device_plugin.kubelet import grpc_endpoint
from gpuhook.device_plugin.metrics.counters import Counters
from gpuhook.dra.api import dra_services
from gpuhook.dra.kubelet import socket_paths
from gpuhook.dra.kubelet.driver_services import ClaimService, RegistrationService
from gpuhook.dra.kubelet.driver_sockets import DriverSockets
from gpuhook.dra.node_drivers import kubelet_claims
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpuhook.device_plugin.api_server.service_account import ApiAccess
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.dra.claims.claim import ClaimName
    from gpuhook.dra.claims.prepared_claim import PreparedDevice
    from gpuhook.dra.node_drivers.local_driver import LocalDriver

_INTERVAL = 0.5  # seconds
_POD_UID = "drain"  # in the place of a pod's, in the names of sockets


class DrainCalls:
    """Answers the kubelet for a driver that no longer runs: it ends claims, and prepares none."""

    def __init__(self, driver: LocalDriver) -> None:
        self._driver = driver

    async def prepare(
        self, names: Sequence[ClaimName]
    ) -> dict[str, tuple[PreparedDevice, ...] | Exception]:
        """Return GH2646 for each claim."""
        return {one.uid: fault("GH2646", claim=one, driver=self._driver.name) for one in names}

    async def unprepare(self, names: Sequence[ClaimName]) -> dict[str, Exception | None]:
        """End each claim."""
        answers: dict[str, Exception | None] = {}
        for name in names:
            try:
                await daemon_thread.begin(partial(self._driver.end, name.uid), "gpuhook-drain")
            except Exception as error:  # an answer of the claim's own
                answers[name.uid] = error
            else:
                answers[name.uid] = None
        return answers


def require_unused(root: str, drivers: Iterable[LocalDriver]) -> None:
    """Return if no pod uses a claim of these drivers; raises GH2643 and GH2645."""
    using = kubelet_claims.using_pods(root, {one.name for one in drivers})
    if using:
        pods = dict.fromkeys(pod for found in using.values() for pod in found)
        claims = ", ".join(f"{namespace}/{name}" for namespace, name in using)
        raise fault("GH2643", pods=", ".join(pods), claims=claims)


def end_claims(driver: LocalDriver) -> list[str]:
    """End the prepared claims of a driver, and return a line for each."""
    claims, _ = driver.claims()
    lines = []
    for uid, prepared in claims.items():
        driver.end(uid)
        devices = ", ".join(dict.fromkeys(one.name for one in prepared.held))
        lines.append(f"ended claim {prepared.claim.name} of {driver.name}: {devices}")
    return lines


def restore_modes(launch: Launch) -> list[str]:
    """Restore the time slices and compute modes that drivers have set, and return a line for each.

    The drivers must have stopped. One that cannot be restored is a line, too.
    """
    boot = boot_id(launch.host_root)
    if not saved_policies.read(boot, saved_policies.CLAIMS_FILE):
        return []
    policies = PolicyService(launch.host_root, saved_policies.CLAIMS_FILE)
    snapshot = node_snapshot.take(launch, Configuration())
    policies.restore((), snapshot)
    state = policies.update((), snapshot)
    return [*state.changed, *(one.message for one in state.faults)]


def is_running(driver: LocalDriver) -> bool:
    """Return whether a process serves the driver."""
    return any(not grpc_endpoint.is_dead(path) for path in driver.sockets())


async def release(
    root: str, drivers: Sequence[LocalDriver], wait: float, say: Callable[[str], None]
) -> None:
    """Wait until the kubelet has no claim of the drivers, and answer for those without a process.

    Raises GH2644 after `wait` seconds, and GH2645.
    """
    served: list[DriverSockets] = []
    end = asyncio.get_running_loop().time() + wait
    try:
        while left := _kept(root, drivers):
            if not served:
                say(f"waiting for the kubelet to end {left}")
                served = [_sockets(root, one) for one in drivers if not is_running(one)]
                await asyncio.gather(*(one.start() for one in served))
            if asyncio.get_running_loop().time() >= end:
                raise fault("GH2644", claims=left, seconds=round(wait))
            await asyncio.sleep(_INTERVAL)
    finally:
        await asyncio.gather(*(one.end() for one in served))


def delete_slices(driver: str, node: str | None, access: ApiAccess | None) -> int | None:
    """Delete a driver's slices of this node, and return their number.

    None if the API server or the name of the node is unknown. Raises the faults of ApiServer.
    """
    if access is None or not node:
        return None
    from gpuhook.device_plugin.api_server.client import ApiServer
    from gpuhook.dra.slices.slice_client import SliceClient, withdraw

    return withdraw(SliceClient(ApiServer(access), driver, node))


def _kept(root: str, drivers: Iterable[LocalDriver]) -> str:
    """Return the claims of the drivers that the kubelet keeps, "" for none."""
    names = {one.name for one in drivers}
    claims = kubelet_claims.kubelet_claims(root)
    kept = (one for one in claims if not one.drivers.isdisjoint(names))
    return ", ".join(f"claim {one}" for one in kept)


def _sockets(root: str, driver: LocalDriver) -> DriverSockets:
    paths = socket_paths.socket_paths(f"{root}/plugins", driver.registry, driver.name, _POD_UID)
    versions = map(dra_services.supported, dra_services.VERSIONS)
    counters = Counters()
    return DriverSockets(
        paths,
        ClaimService(driver.name, DrainCalls(driver), counters),
        RegistrationService(driver.name, paths.service, versions, counters),
    )
