# SPDX-License-Identifier: Apache-2.0
"""Who is affected when devices become unhealthy: resources, pods, and the sentence that says so."""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuhook.device_plugin.offer.offered_devices import Resource

_SHOWN = 10
Holder = tuple[str, str, str]  # namespace, pod, container


@dataclass(frozen=True, slots=True)
class Affected:
    """The units of one resource on certain devices: their ids, of `total` that there are."""

    resource: str
    units: tuple[str, ...]
    total: int


def affected(resources: Iterable[Resource], devices: Collection[str]) -> tuple[Affected, ...]:
    """Return the units on `devices` (UUIDs) per resource; none of a resource that has none."""
    found = []
    for resource in resources:
        units = tuple(unit.id for unit in resource.units if unit.device.uuid in devices)
        if units:
            found.append(Affected(resource.name, units, len(resource.units)))
    return tuple(found)


def pods(units: Iterable[str], holders: Mapping[str, Holder]) -> tuple[str, ...]:
    """Return the pods that hold any of the units, "namespace/name", sorted, each once."""
    held = (holders[unit] for unit in units if unit in holders)
    return tuple(sorted({f"{namespace}/{pod}" for namespace, pod, _container in held}))


def sentence(
    label: str,
    what: str,
    hits: Iterable[Affected],
    names: Iterable[str] | None = (),
) -> str:
    """Return what happened to a GPU and to whom, in one line.

    "GPU 0 (GPU-...) reported XID 79 (...); unhealthy: nvidia.com/gpu 4 of 4; pods: ns/a, ns/b".
    `names` is None where it is not known who holds the units.
    """
    counts = [f"{one.resource} {len(one.units)} of {one.total}" for one in hits]
    parts = [f"{label} {what}".strip()]
    if counts:
        parts.append(f"unhealthy: {', '.join(counts)}")
        parts.append(f"pods: {_list(names)}")
    return "; ".join(parts)


def _list(names: Iterable[str] | None) -> str:
    if names is None:
        return "not known"
    all_of_them = list(names)
    shown = ", ".join(all_of_them[:_SHOWN])
    more = len(all_of_them) - _SHOWN
    return (shown + f" and {more} more" if more > 0 else shown) or "none"
