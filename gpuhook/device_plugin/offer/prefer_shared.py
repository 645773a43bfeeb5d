# SPDX-License-Identifier: Apache-2.0
"""The best units of shared GPUs and of MIG instances for one container.

With either policy, several units of one request are of distinct physical GPUs if there are enough,
and within a GPU of distinct instances: two shares of one GPU are no more than one. Then the policy
applies: distributed selects the GPU with the smallest part in use, packed the GPU with the
greatest. So packed packs the containers of a node, and not the units of a container. The last
criterion is the lowest index.

A unit is in use if the kubelet does not list it as available. Units of an unhealthy device are
ignored.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from gpuhook.device_plugin.config.sharing_section import PACKED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpuhook.device_plugin.offer.offered_devices import Unit


@dataclass(slots=True)
class Load:
    """The units of a GPU or an instance, and those in use."""

    used: int = 0
    units: int = 0

    @property
    def part(self) -> float:
        """The part in use, 0 to 1: GPUs can have different numbers of replicas."""
        return self.used / self.units if self.units else 0.0


def loads(
    units: Iterable[Unit], available: Collection[str], unhealthy: Collection[str] = ()
) -> tuple[dict[str, Load], dict[str, Load]]:
    """Return the load of each physical GPU and of each device, by UUID."""
    gpus: defaultdict[str, Load] = defaultdict(Load)
    devices: defaultdict[str, Load] = defaultdict(Load)
    for unit in units:
        is_free = unit.id in available
        if not is_free and unit.device.uuid in unhealthy:
            continue
        for load in (gpus[unit.device.gpu], devices[unit.device.uuid]):
            load.units += 1
            load.used += not is_free
    return dict(gpus), dict(devices)


def choose(
    units: tuple[Unit, ...],
    available: Collection[str],
    required: Collection[str],
    size: int,
    *,
    policy: str,
    unhealthy: Collection[str] = (),
) -> set[str]:
    """Return the ids of the best `size` units, the required ones among them.

    `required` are available, and there are enough.
    """
    gpu_loads, device_loads = loads(units, available, unhealthy)
    gpu_picks = Counter(unit.device.gpu for unit in units if unit.id in required)
    device_picks = Counter(unit.device.uuid for unit in units if unit.id in required)
    gpus: dict[str, _Pile] = {}
    devices: dict[str, _Pile] = {}
    for order, unit in enumerate(units):
        if unit.id not in available or unit.id in required:
            continue
        gpu, uuid = unit.device.gpu, unit.device.uuid
        if gpu not in gpus:
            gpus[gpu] = _Pile(gpu_loads[gpu], order, policy == PACKED, gpu_picks[gpu])
        if uuid not in devices:
            pile = _Pile(device_loads[uuid], order, policy == PACKED, device_picks[uuid])
            gpus[gpu].parts.append(pile)
            devices[uuid] = pile
        devices[uuid].ids.append(unit.id)
    for pile in gpus.values():
        heapq.heapify(pile.parts)
    heap = list(gpus.values())
    heapq.heapify(heap)
    return {*required, *(_pick(heap) for _ in range(size - len(required)))}


@dataclass(slots=True)
class _Pile:
    """A GPU with its devices as parts, or a device with its free units; the best is the least."""

    load: Load
    order: int
    packed: bool
    picks: int
    parts: list[_Pile] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    def __lt__(self, other: _Pile) -> bool:
        return self._rank() < other._rank()

    def _rank(self) -> tuple[int, float, int]:
        part = self.load.part
        return (self.picks, -part if self.packed else part, self.order)


def _pick(heap: list[_Pile]) -> str:
    """Remove the best unit from the best pile, and an empty pile from the heap."""
    pile = heap[0]
    chosen = _pick(pile.parts) if pile.parts else pile.ids.pop(0)
    pile.picks += 1
    pile.load.used += 1
    if pile.parts or pile.ids:
        heapq.heapreplace(heap, pile)
    else:
        heapq.heappop(heap)
    return chosen
