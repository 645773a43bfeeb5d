# SPDX-License-Identifier: Apache-2.0
"""The resources and pods of devices that became unhealthy, and the sentence of the event."""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuhook.device_plugin.metrics.unit_holders import Holder
    from gpuhook.device_plugin.offer.offered_devices import Resource

_MAX_PODS = 10  # in a sentence


@dataclass(frozen=True, slots=True)
class Affected:
    """The ids of one resource's units on certain devices; `total` is the number of its units."""

    resource: str
    units: tuple[str, ...]
    total: int


def affected(resources: Iterable[Resource], devices: Collection[str]) -> tuple[Affected, ...]:
    """Return the units on `devices` (UUIDs) by resource, without resources that have none."""
    hits = []
    for resource in resources:
        units = tuple(unit.id for unit in resource.units if unit.device.uuid in devices)
        if units:
            hits.append(Affected(resource.name, units, len(resource.units)))
    return tuple(hits)


def pods(units: Iterable[str], holders: Mapping[str, Holder]) -> tuple[str, ...]:
    """Return the pods that hold any of the units, "namespace/name", sorted, each once."""
    held = (holders[unit] for unit in units if unit in holders)
    return tuple(sorted({f"{holder.namespace}/{holder.pod}" for holder in held}))


def sentence(
    label: str, reason: str, hits: Iterable[Affected], names: Collection[str] | None
) -> str:
    """Return one line about an unhealthy GPU; `names` are its pods, None if unknown.

    "GPU 0 (GPU-...) reported XID 79 (...); unhealthy: nvidia.com/gpu 4 of 4; pods: ns/a, ns/b".
    """
    counts = ", ".join(f"{one.resource} {len(one.units)} of {one.total}" for one in hits)
    return f"{label} {reason}; unhealthy: {counts}; pods: {_list(names)}"


def _list(names: Collection[str] | None) -> str:
    if names is None:
        return "not known"
    shown = ", ".join(list(names)[:_MAX_PODS])
    more = len(names) - _MAX_PODS
    return (shown + f" and {more} more" if more > 0 else shown) or "none"
