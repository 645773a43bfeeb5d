# SPDX-License-Identifier: Apache-2.0
"""Resources and links for the tests of preferred allocation, and the best choice by brute force."""

from __future__ import annotations

from itertools import combinations

from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit
from gpuhook.vendors.nvidia.nvml.topology import Topology

GPU = "nvidia.com/gpu"


class Table(Topology):
    """Scores by pairs of indices; a pair that is not in the dict has the score `other`."""

    _scores: dict[frozenset[int], int]
    _other: int

    def __init__(self, scores: dict[tuple[int, int], int] | None = None, other: int = 0) -> None:
        super().__init__()
        by_pair = {frozenset(pair): score for pair, score in (scores or {}).items()}
        object.__setattr__(self, "_scores", by_pair)  # a Topology is frozen
        object.__setattr__(self, "_other", other)

    def score(self, one: str, other: str) -> int:
        pair = frozenset((int(one.rpartition("-")[2]), int(other.rpartition("-")[2])))
        return self._scores.get(pair, self._other)


NO_LINKS = Table()


def device(index: int, numa: int | None = None, part: int | None = None) -> Device:
    gpu = f"GPU-{index}"
    return Device(
        uuid=gpu if part is None else f"MIG-{index}-{part}",
        index=str(index) if part is None else f"{index}:{part}",
        gpu=gpu,
        gpu_index=index,
        paths=(),
        host_paths=(),
        numa_node=numa,
        instance=None if part is None else (part, 0),
    )


def whole(count: int, numa: tuple[int | None, ...] = ()) -> Resource:
    nodes = [*numa, *[None] * count]
    devices = [device(index, nodes[index]) for index in range(count)]
    return Resource(GPU, tuple(Unit(found.uuid, found) for found in devices))


def shared(*replicas: int) -> Resource:
    """Return a resource with one GPU for each number of replicas."""
    units = [
        Unit(f"GPU-{index}::{replica}", device(index), replica)
        for index, count in enumerate(replicas)
        for replica in range(count)
    ]
    return Resource(GPU, tuple(units), sharing="time-slicing")


def mig(*parts: int, replicas: int = 1) -> Resource:
    """Return a resource of MIG instances: the number on each GPU is given."""
    devices = [device(gpu, part=part) for gpu, count in enumerate(parts) for part in range(count)]
    units = [
        Unit(found.uuid, found)
        if replicas == 1
        else Unit(f"{found.uuid}::{replica}", found, replica)
        for found in devices
        for replica in range(replicas)
    ]
    return Resource(GPU, tuple(units), is_mig=True)


def ids(resource: Resource) -> list[str]:
    return [unit.id for unit in resource.units]


def taken(resource: Resource, *counts: int) -> list[str]:
    """Return the available units if so many units of each GPU are allocated."""
    left = list(counts)
    free = []
    for unit in resource.units:
        if left[unit.device.gpu_index] > 0:
            left[unit.device.gpu_index] -= 1
        else:
            free.append(unit.id)
    return free


def best_by_force(
    resource: Resource, available: list[str], required: list[str], size: int, links: Table
) -> list[str]:
    """Return the best whole GPUs of all sets, by the rules in aligned.py."""
    nodes = {unit.id: unit.device.numa_node for unit in resource.units}
    free = [name for name in ids(resource) if name in available]

    def pairs(names: list[str]) -> tuple[int, int]:
        both = list(combinations(names, 2))
        near = sum(nodes[a] is not None and nodes[a] == nodes[b] for a, b in both)
        return sum(links.score(a, b) for a, b in both), near

    def value(names: list[str]) -> tuple[tuple[int, int], tuple[int, int], list[int]]:
        left = [name for name in free if name not in names]
        return pairs(names), pairs(left), [-free.index(name) for name in names]

    sets = [list(names) for names in combinations(free, size)]
    return max((names for names in sets if set(required).issubset(names)), key=value)
