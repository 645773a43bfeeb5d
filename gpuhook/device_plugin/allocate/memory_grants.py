# SPDX-License-Identifier: Apache-2.0
"""The memory limits of a container, in the form that its runtime reads.

A mount of /dev/null grants the limit of each device: a pod can set any variable, but not remove a
mount. Variables repeat the limit for runtimes that read only those, such as NVIDIA's. They apply to
all devices of a container, so they are set only if all devices have the same limit.
"""

from __future__ import annotations

from gpuhook.device_plugin.allocate.container_allocation import AllocatedMount, Allocation
from gpuhook.device_plugin.config.sharing_section import MPS
from gpuhook.request.memory_request import MIB, MemoryLimit, mount_path
from gpuhook.request.parse import Vocabulary
from gpuhook.vendors.hot.memory_vendors import vendor_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.offer.offered_devices import Resource


def limits(resource: Resource, counts: Mapping[str, int]) -> list[MemoryLimit]:
    """Return the limits of a container, for each device that has one.

    `counts` has the number of its units by device UUID. The limit is the sum of its units, at most
    the memory of the device.
    """
    found = []
    for device in resource.devices:
        one, count = resource.memory.get(device.uuid), counts.get(device.uuid, 0)
        if one is not None and count:
            hard = min(count * one.hard, device.memory_bytes or count * one.hard)
            limit = MemoryLimit(device.uuid, hard, count * one.soft, is_asked=one.is_asked)
            found.append(limit)
    return found


def grants(resource: Resource, counts: Mapping[str, int]) -> Allocation:
    """Return the mounts and variables of the limits; empty without limits.

    It is also empty for MPS, whose server enforces the limits.
    """
    if resource.sharing == MPS:
        return Allocation()
    found = limits(resource, counts)
    mounts = (
        AllocatedMount(mount_path(Vocabulary.memory_prefix, limit), "/dev/null") for limit in found
    )
    is_all = len(found) == len(counts)
    return Allocation(envs=_variables(found) if is_all else {}, mounts=tuple(mounts))


def hints(resource: Resource, counts: Mapping[str, int]) -> Allocation:
    """Return the variable that lists the frameworks with `hints`, if there are any.

    The runtime sets the frameworks' own variables: from here they would replace those of the image.
    """
    entries = (resource.entries.get(uuid) for uuid in counts)
    names = dict.fromkeys(name for entry in entries if entry is not None for name in entry.hints)
    return Allocation(envs={Vocabulary.hints_env: ",".join(names)} if names else {})


def _variables(found: list[MemoryLimit]) -> dict[str, str]:
    """Return the limit, and the guaranteed memory below it if limits exceed the device.

    Otherwise the limit is guaranteed. NVIDIA's hook never removes a request from the parent cgroups
    of a container, and kernels with the controller dmem account it there.
    """
    values = {(limit.hard // MIB, limit.soft // MIB) for limit in found}
    if len(values) != 1:
        return {}
    ((hard, soft),) = values
    words = vendor_of(found[0].device).vocabulary
    named = {words.memory_limit_env: str(hard)}
    if 0 < soft < hard:
        named[words.memory_request_env] = str(soft)
    return named
