# SPDX-License-Identifier: Apache-2.0
"""Memory of running containers that the offered units do not account for. Pure.

The kubelet and the scheduler account for units by resource. After a change of the configuration,
containers keep what they were given, also of a resource that the plugin no longer offers.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.request.memory_request import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuhook.device_plugin.metrics.container_memory import HolderEntry
    from gpuhook.device_plugin.metrics.unit_holders import Holder
    from gpuhook.device_plugin.offer.offered_devices import Device, Resource


@dataclass(frozen=True, slots=True)
class Overcommitment:
    """A device whose memory the units of `resource` divide, and the containers beyond that.

    `held` is the memory of each container in bytes, by "namespace/pod"; None without a record.
    """

    resource: str
    device: Device
    held: Mapping[str, int | None]

    @property
    def sentence(self) -> str:
        """The event's message."""
        pods = ", ".join(f"{pod} ({_amount(memory)})" for pod, memory in self.held.items())
        return (
            f"GPU {self.device.gpu_index} ({self.device.uuid}): the units of {self.resource} do "
            "not account for the memory of pods that started under another configuration: "
            f"{pods}; "
            "until these pods terminate, the node can assign more memory than the GPU has"
        )


def overcommitments(
    resources: Iterable[Resource],
    units: Mapping[str, Mapping[str, Holder]],
    entries: Iterable[HolderEntry],
) -> tuple[Overcommitment, ...]:
    """Return the devices with containers that have more memory than their units account for.

    `units` are the holders by resource and unit id, of every resource of the node. A container
    without a recorded limit is returned only if no unit of its device accounts for it.
    """
    offered = {resource.name: resource for resource in resources}
    recorded = {
        (entry.namespace, entry.pod, entry.container, limit.device): limit.hard
        for entry in entries
        for limit in entry.memory
    }
    accounted = _accounted(offered, units)
    overcommitted = []
    for resource in offered.values():
        for device in resource.devices:
            if device.uuid not in resource.memory:
                continue
            held: dict[str, int | None] = {}
            for holder, memory in accounted.get(device.uuid, {}).items():
                has = recorded.get((*holder, device.uuid))
                is_beyond = memory == 0 if has is None else has > memory
                if is_beyond:
                    pod = f"{holder.namespace}/{holder.pod}"
                    before = held.get(pod, 0)
                    held[pod] = None if has is None or before is None else before + has
            if held:
                overcommitted.append(
                    Overcommitment(resource.name, device, dict(sorted(held.items())))
                )
    return tuple(overcommitted)


def _accounted(
    offered: Mapping[str, Resource], units: Mapping[str, Mapping[str, Holder]]
) -> dict[str, dict[Holder, int]]:
    """Return the memory in bytes of the units that containers hold, by device UUID."""
    accounted: dict[str, dict[Holder, int]] = {}
    for name, holders in units.items():
        memory = offered[name].memory if name in offered else {}
        for unit, holder in holders.items():
            device = unit.partition("::")[0]
            of_device = accounted.setdefault(device, {})
            size = memory[device].hard if device in memory else 0
            of_device[holder] = of_device.get(holder, 0) + size
    return accounted


def _amount(memory: int | None) -> str:
    return "no recorded limit" if memory is None else f"{memory // MIB} MiB"
