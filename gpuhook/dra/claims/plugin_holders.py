# SPDX-License-Identifier: Apache-2.0
"""Refuses a claim whose GPU a container already has from a device plugin.

The kubelet's pod resources API names the containers of all device plugins, and the checkpoint of
its device manager does if the API does not answer. They are queried after the intent of a claim is
on the disk, where gpuhook's own plugin finds it: of two that come at the same time, one is refused.
"""

from __future__ import annotations

import asyncio

from gpuhook.device_plugin.kubelet import device_checkpoint
from gpuhook.device_plugin.metrics import unit_holders
from gpuhook.device_plugin.offer.offered_devices import unit_id
from gpuhook.dra.pool.pool_device import MEMORY
from gpuhook.errors import fault
from gpuhook.request.replicas import device_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gpuhook.device_plugin.metrics.unit_holders import Holdings
    from gpuhook.dra.claims.prepared_claim import HeldDevice, PreparedClaim
    from gpuhook.dra.pool.pool_device import Pool

    Unit = tuple[str, str]  # of a plugin: its id, and the container that has it

_TIMEOUT = 10.0  # seconds, of the forty in which a claim must be prepared


class PluginHolders:
    """Queries the kubelet with the root directory `kubelet`; it is made in the event loop.

    `socket` is that of the pod resources API.
    """

    def __init__(self, kubelet: str, socket: str) -> None:
        self._kubelet = kubelet
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._running: asyncio.Task[Holdings] | None = None
        self._next: asyncio.Task[Holdings] | None = None

    def require_free(self, known: PreparedClaim, pool: Pool) -> None:
        """Return if no container has a device of the claim; blocks, so never in the event loop.

        Raises GH2640 for a container that has one, and GH2641 if that cannot be read.
        """
        query = asyncio.run_coroutine_threadsafe(self._query(), self._loop)
        holdings = query.result()
        parents = {one.device.uuid: one.device.gpu for one in pool.devices}
        units = list(self._units(holdings, parents))
        for held, allocated in zip(known.held, known.claim.devices, strict=True):
            is_unlimited = bool(held.part) and allocated.consumed.get(MEMORY) == 0
            for unit, holder in () if held.is_admin else units:
                is_allowed = is_unlimited and device_of(unit)
                device = device_checkpoint.device_of(unit, parents)
                if _overlaps(held, device, parents.get(device, "")) and not is_allowed:
                    about = {"claim": known.claim.name, "device": held.name}
                    raise fault("GH2640", **about, holder=holder, unit=unit)

    async def _query(self) -> Holdings:
        """Return holdings that are read from now on; claims that wait share one query.

        The kubelet refuses callers that query it often.
        """
        if self._next is None:
            self._next = asyncio.ensure_future(self._ask(self._running))
        return await asyncio.shield(self._next)

    async def _ask(self, former: asyncio.Task[Holdings] | None) -> Holdings:
        if former is not None:
            await asyncio.wait({former})
        self._running, self._next = self._next, None
        return await unit_holders.ask(self._socket, _TIMEOUT)

    def _units(self, holdings: Holdings, devices: Collection[str]) -> Iterator[Unit]:
        """Yield the units of GPUs with their containers; raises GH2641."""
        if not holdings.reason:
            for units in holdings.by_resource.values():
                for unit, (namespace, pod, container) in units.items():
                    yield unit_id(unit), f"container {container} of pod {namespace}/{pod}"
            return
        read = device_checkpoint.kubelet_units(self._kubelet, devices)
        if read.trouble:
            raise fault("GH2641", reason=f"{holdings.reason}; {read.trouble}")
        for (pod, container), held in read.held.items():
            for unit in held:
                yield unit_id(unit), f"container {container} of the pod with UID {pod}"


def _overlaps(held: HeldDevice, device: str, gpu: str) -> bool:
    """Return whether a unit's device is the claim's, a part of it, or contains it."""
    return bool(device) and (device in (held.uuid, held.gpu) or gpu == held.uuid)
