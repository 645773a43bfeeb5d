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
from dataclasses import dataclass, field

from gpuhook.device_plugin.config.sharing_section import PACKED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from collections.abc import Set as AbstractSet

    from gpuhook.device_plugin.offer.offered_devices import Resource


def choose(
    resource: Resource,
    available: AbstractSet[str],
    required: AbstractSet[str],
    size: int,
    *,
    policy: str,
    unhealthy: Collection[str] = (),
) -> set[str]:
    """Return the ids of the best `size` units, the required ones among them.

    `required` are available, and there are enough.
    """
    index = resource.index
    gpus: dict[str, list[_Pile]] = {}
    for device in index.devices:
        ids = index.ids[device.uuid]
        free = [name for name in ids if name in available]
        rest = [name for name in free if name not in required]
        units = len(free) if device.uuid in unhealthy else len(ids)
        order = index.positions[rest[0]] if rest else 0
        pile = _Pile(
            units - len(free), units, order, policy == PACKED, len(free) - len(rest), ids=rest[::-1]
        )
        gpus.setdefault(device.gpu, []).append(pile)
    heap = [_entry(_joined(piles)) for piles in gpus.values() if any(one.ids for one in piles)]
    heapq.heapify(heap)
    return {*required, *(_pick(heap) for _ in range(size - len(required)))}


@dataclass(slots=True)
class _Pile:
    """A GPU with its devices as parts, or a device with its free units, the last one first.

    `used` of its `units` are in use, `picks` of them by this container; `order` is the position of
    the first free one.
    """

    used: int
    units: int
    order: int
    packed: bool
    picks: int
    parts: list[_Entry] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)


# The criteria of a pile before it, the best is the least: a heap then compares no piles. The part
# in use is 0 to 1, since GPUs can have different numbers of replicas.
_Entry = tuple[int, float, int, _Pile]


def _entry(pile: _Pile) -> _Entry:
    part = pile.used / pile.units
    return (pile.picks, -part if pile.packed else part, pile.order, pile)


def _joined(piles: list[_Pile]) -> _Pile:
    """Return the pile of a GPU with these devices, some of which have free units."""
    if len(piles) == 1:
        return piles[0]
    parts = [_entry(pile) for pile in piles if pile.ids]
    heapq.heapify(parts)
    return _Pile(
        sum(pile.used for pile in piles),
        sum(pile.units for pile in piles),
        min(pile.order for pile in piles if pile.ids),
        piles[0].packed,
        sum(pile.picks for pile in piles),
        parts,
    )


def _pick(heap: list[_Entry]) -> str:
    """Remove the best unit from the best pile, and an empty pile from the heap."""
    pile = heap[0][-1]
    chosen = _pick(pile.parts) if pile.parts else pile.ids.pop()
    pile.picks += 1
    pile.used += 1
    if pile.parts or pile.ids:
        heapq.heapreplace(heap, _entry(pile))
    else:
        heapq.heappop(heap)
    return chosen
