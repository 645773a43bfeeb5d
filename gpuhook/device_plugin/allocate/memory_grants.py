# SPDX-License-Identifier: Apache-2.0
"""The memory that a container is granted of its devices, in the words that its runtime reads.

A mount of /dev/null says it for each device: a pod can set any variable, and take no mount away.
The variables say it again for runtimes that know only those, NVIDIA's among them; they are of all
devices of a container, so they are there only where all of these have the same limit.
"""

from __future__ import annotations

from gpuhook.device_plugin.allocate.container_allocation import AllocatedMount, Allocation
from gpuhook.device_plugin.config.sharing_section import MPS
from gpuhook.request.memory_request import MIB, MemoryLimit, mount_path
from gpuhook.vendors.nvidia.hot.vocabulary import VOCABULARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.offer.offered_devices import Resource


def limits(resource: Resource, counts: Mapping[str, int]) -> list[MemoryLimit]:
    """Return what a container may have of each device that has a limit.

    `counts` are its units, by the device's UUID. The sum of them is its limit, and no more than the
    device has.
    """
    found = []
    for device in resource.devices:
        one, count = resource.memory.get(device.uuid), counts.get(device.uuid, 0)
        if one is not None and count:
            hard = min(count * one.hard, device.memory_bytes or count * one.hard)
            limit = MemoryLimit(device.uuid, hard, count * one.soft, is_asked=one.is_asked)
            found.append(limit)
    return found


def granted(resource: Resource, counts: Mapping[str, int]) -> Allocation:
    """Return the mounts and variables of the limits; nothing where there are none.

    Nothing for MPS either: its server bounds its clients itself.
    """
    if resource.sharing == MPS:
        return Allocation()
    found = limits(resource, counts)
    mounts = (
        AllocatedMount(mount_path(VOCABULARY.memory_prefix, limit), "/dev/null") for limit in found
    )
    is_all = len(found) == len(counts)
    return Allocation(envs=_variables(found) if is_all else {}, mounts=tuple(mounts))


def hinted(resource: Resource, counts: Mapping[str, int]) -> Allocation:
    """Return the variable that has the runtime tell frameworks of the limits, if it is wanted.

    The frameworks' own variables are the runtime's to set: from here they would replace those of
    the image.
    """
    entries = (resource.entries.get(uuid) for uuid in counts)
    names = dict.fromkeys(name for entry in entries if entry is not None for name in entry.hints)
    return Allocation(envs={VOCABULARY.hints_env: ",".join(names)} if names else {})


def _variables(found: list[MemoryLimit]) -> dict[str, str]:
    """Return the limit, and what is guaranteed below it where limits exceed the device.

    Limits that do not are a guarantee by themselves, and NVIDIA's hook leaves every request behind
    in the cgroups above a container's, for ever where the kernel counts (dmem).
    """
    values = {(limit.hard // MIB, limit.soft // MIB) for limit in found}
    if len(values) != 1:
        return {}
    ((hard, soft),) = values
    named = {VOCABULARY.memory_limit_env: str(hard)}
    if 0 < soft < hard:
        named[VOCABULARY.memory_request_env] = str(soft)
    return named
