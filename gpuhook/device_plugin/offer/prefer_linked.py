# SPDX-License-Identifier: Apache-2.0
"""The best whole GPUs for one container, by the links between them.

The criteria, in this order:
1. the highest sum of the scores of all selected pairs;
2. the highest sum of the scores of all remaining pairs, for later containers of unknown size;
3. the lowest indices.
The score of a pair is that of its link. With equal links, two GPUs of one NUMA node score higher
than two of different nodes. If all links are equal, the GPUs are therefore of one NUMA node if they
fit, of the one with the fewest others.

Up to 16 GPUs the answer is exact, from a cached table with the score of every subset, which depends
on the links only. It takes the same time for any links. For more than 16 GPUs, a greedy choice
starts from each GPU, and the best result is taken.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import lru_cache
from operator import add

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gpuhook.device_plugin.offer.offered_devices import Device
    from gpuhook.vendors.vendor_part import LinkScores

EXACT = 16  # GPUs: a table of 65,536 sums, half a MiB
_Weights = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class LinkedDevices:
    """The devices of a resource, of which a container needs `size`, and their links.

    `devices` are in the order of their indices. `available` and `required` have UUIDs: the required
    ones are available, and there are enough.
    """

    devices: Sequence[Device]
    available: Collection[str]
    required: Collection[str]
    size: int
    links: LinkScores


def choose(offer: LinkedDevices) -> set[str]:
    """Return the UUIDs of the best devices, the required ones among them."""
    devices, available = offer.devices, offer.available
    if len(devices) > EXACT:
        devices = [device for device in devices if device.uuid in available]
    weights = _weights(devices, offer.links)
    free = [number for number, device in enumerate(devices) if device.uuid in available]
    fixed = [number for number, device in enumerate(devices) if device.uuid in offer.required]
    best = _exact if len(devices) <= EXACT else _grown
    return {devices[number].uuid for number in best(weights, free, fixed, offer.size)}


def prepare(devices: Sequence[Device], links: LinkScores) -> None:
    """Compute the tables for `devices` now rather than at the first choice."""
    if len(devices) <= EXACT:
        _sums(_weights(devices, links))
        _masks(len(devices))


def _weights(devices: Sequence[Device], links: LinkScores) -> _Weights:
    """Return for each device the weights of its pairs with the devices before it."""
    step = len(devices) ** 2  # a link outweighs the NUMA nodes of all pairs
    return tuple(
        tuple(
            links.score(first.uuid, second.uuid) * step
            + (first.numa_node is not None and first.numa_node == second.numa_node)
            for second in devices[:number]
        )
        for number, first in enumerate(devices)
    )


def _exact(weights: _Weights, free: list[int], fixed: list[int], size: int) -> list[int]:
    """Return the best set.

    The first device has the highest bit: of two sets of one size, the one with the lower numbers is
    the greater mask.
    """
    count = len(weights)
    sums = _sums(weights)
    may, must = _mask(free, count), _mask(fixed, count)
    masks: Sequence[int] = _masks(count)[size]  # from the greatest down
    if len(free) < count or must:
        masks = [mask for mask in masks if mask & may == mask and mask & must == must]
    values = [sums[mask] for mask in masks]
    highest = max(values)
    equal = [mask for mask, value in zip(masks, values, strict=True) if value == highest]
    left = [sums[may ^ mask] for mask in equal]
    chosen = equal[left.index(max(left))]
    return [number for number in free if chosen >> (count - 1 - number) & 1]


def _mask(numbers: list[int], count: int) -> int:
    return sum(1 << (count - 1 - number) for number in numbers)


@lru_cache(maxsize=4)
def _sums(weights: _Weights) -> array[int]:
    """Return the sum of the weights of all pairs in each subset, by mask.

    Each round adds one device before the others, from the last to the first: the subsets with it
    are the subsets without it plus its own pairs.
    """
    count = len(weights)
    sums = array("q", [0])  # a list would allocate 5 MB of numbers and keep that memory
    for number in reversed(range(count)):
        pairs = array("q", [0])
        for other in reversed(range(number + 1, count)):
            weight = weights[other][number]
            pairs += array("q", (pair + weight for pair in pairs))
        sums += array("q", map(add, sums, pairs))
    return sums


@lru_cache(maxsize=4)
def _masks(count: int) -> tuple[array[int], ...]:
    """Return the masks of `count` bits by how many of these are set, from the greatest down."""
    # By the number of set bits, starting with zero digits.
    rows = [array("H", [0]), *(array("H") for _ in range(count))]
    for digit in range(count):
        high = 1 << digit
        for bits in range(digit + 1, 0, -1):
            rows[bits] = array("H", (high | mask for mask in rows[bits - 1])) + rows[bits]
    return tuple(rows)


def _grown(weights: _Weights, free: list[int], fixed: list[int], size: int) -> list[int]:
    """Return a good set of more devices than a table can hold."""
    rows = [
        [weights[max(a, b)][min(a, b)] if a != b else 0 for b in range(len(weights))]
        for a in range(len(weights))
    ]
    rests = {number: -sum(rows[number]) for number in free}  # to the remaining devices

    def grow(chosen: list[int]) -> list[int]:
        gains = [sum(rows[number][other] for other in chosen) for number in range(len(rows))]
        open_ones = set(free).difference(chosen)
        while len(chosen) < size:
            best = max(open_ones, key=lambda number: (gains[number], rests[number], -number))
            open_ones.remove(best)
            chosen.append(best)
            gains = list(map(add, gains, rows[best]))
        return sorted(chosen)

    def value(chosen: list[int]) -> tuple[int, int, list[int]]:
        inside = sum(rows[a][b] for a in chosen for b in chosen)
        return (inside, sum(rests[a] for a in chosen), [-number for number in chosen])

    starts = [fixed] if fixed or size == 0 else [[number] for number in free]
    return max((grow(list(start)) for start in starts), key=value)
