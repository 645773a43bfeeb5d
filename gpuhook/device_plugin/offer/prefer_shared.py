# SPDX-License-Identifier: Apache-2.0
"""The best units of shared GPUs and of MIG instances for one container.

Several units of one request go to distinct physical GPUs whenever there are enough, and within a
GPU to distinct instances, under either policy: a container that asks for two wants two, and two
slices of one GPU are no more than one. Only then the policy counts: distributed takes the GPU of
which the smallest part is taken, packed the one of which the greatest part is; so packed packs
the containers of a node, not the units of a container. Last, the lowest index.

What is taken is what the kubelet does not name as available; units of an unhealthy device are not
available either and do not count, neither as taken nor as there.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpuhook.device_plugin.offer.offered_devices import Unit

PACKED = "packed"


@dataclass(slots=True)
class Load:
    """How much of a GPU or of an instance is taken."""

    taken: int = 0
    units: int = 0

    @property
    def part(self) -> float:
        """The part that is taken, 0 to 1: GPUs may have different numbers of replicas."""
        return self.taken / self.units if self.units else 0.0


def loads(
    units: Iterable[Unit], available: Collection[str], unhealthy: Collection[str] = ()
) -> tuple[dict[str, Load], dict[str, Load]]:
    """Return what is taken of each physical GPU and of each device, by UUID."""
    gpus: defaultdict[str, Load] = defaultdict(Load)
    devices: defaultdict[str, Load] = defaultdict(Load)
    for unit in units:
        is_free = unit.id in available
        if not is_free and unit.device.uuid in unhealthy:
            continue
        for load in (gpus[unit.device.gpu], devices[unit.device.uuid]):
            load.units += 1
            load.taken += not is_free
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
    """A GPU with its devices as parts, or a device with its free units; the best one is least."""

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
    """Take the best unit out of the best pile, and put the pile back while it has more."""
    pile = heap[0]
    chosen = _pick(pile.parts) if pile.parts else pile.ids.pop(0)
    pile.picks += 1
    pile.load.taken += 1
    if pile.parts or pile.ids:
        heapq.heapreplace(heap, pile)
    else:
        heapq.heappop(heap)
    return chosen
