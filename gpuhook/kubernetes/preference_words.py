# SPDX-License-Identifier: Apache-2.0
"""Why some units were preferred to others, in one sentence for a log."""

from __future__ import annotations

from gpuhook.kubernetes import aligned, spread
from gpuhook.kubernetes.preferred import goes_by_links

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuhook.kubernetes.aligned import Scores
    from gpuhook.kubernetes.devices import Resource


def explanation(
    resource: Resource,
    available: Collection[str],
    chosen: Collection[str],
    *,
    policy: str,
    topology: Scores,
    unhealthy: Collection[str] = (),
) -> str:
    """Return why `chosen` were preferred out of `available`: the counts before, or the links."""
    free, given = set(available).union(chosen), set(chosen)
    if not given:
        return f"{resource.name}: no device was asked for"
    if goes_by_links(resource):
        return f"{resource.name}: {_links(resource, free, given, topology)}"
    return f"{resource.name}: {_counts(resource, free, given, policy, unhealthy)}"


def _links(resource: Resource, free: set[str], given: set[str], topology: Scores) -> str:
    devices = [unit.device for unit in resource.units if unit.id in given]
    left = [unit.device for unit in resource.units if unit.id in free - given]
    nodes = sorted({device.numa_node for device in devices if device.numa_node is not None})
    where = f", on NUMA node {', '.join(map(str, nodes))}" if nodes else ""
    rest = f"those left score {aligned.total(left, topology)}" if left else "none is left"
    return (
        f"GPU {', '.join(device.index for device in devices)} of {len(devices) + len(left)} "
        f"available: links between them score {aligned.total(devices, topology)}{where}; {rest}"
    )


def _counts(
    resource: Resource, free: set[str], given: set[str], policy: str, unhealthy: Collection[str]
) -> str:
    loads, _ = spread.loads(resource.units, free, unhealthy)
    chosen = {unit.device.gpu for unit in resource.units if unit.id in given}
    on: list[str] = []
    not_on: list[str] = []
    for gpu, index in {unit.device.gpu: unit.device.gpu_index for unit in resource.units}.items():
        load = loads.get(gpu)
        taken = f"{load.taken} of {load.units} taken" if load is not None else "unhealthy"
        (on if gpu in chosen else not_on).append(f"GPU {index} ({taken})")
    names = ", ".join(unit.id for unit in resource.units if unit.id in given)
    others = f"; not on {', '.join(not_on)}" if not_on else ""
    return f"{names} by policy {policy}, on {', '.join(on)}{others}"
