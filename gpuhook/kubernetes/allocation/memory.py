# SPDX-License-Identifier: Apache-2.0
"""The memory that a container is granted of its devices, in the words that its runtime reads.

A mount of /dev/null says it for each device: a pod can set any variable, and no such mount. The
variables say it again for runtimes that know only those, NVIDIA's among them; they are of all
devices of a container, so they are there only where all of these have the same limit.
"""

from __future__ import annotations

from collections import Counter

from gpuhook.grant.memory import MIB, MemoryLimit, mount_path
from gpuhook.kubernetes.allocation.allocation import Allocation, Mount
from gpuhook.kubernetes.config.configuration import MPS
from gpuhook.vendors.nvidia.words import VOCABULARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.kubernetes.offer.devices import Resource, Unit


def limits(resource: Resource, units: Sequence[Unit]) -> list[MemoryLimit]:
    """Return what a container with `units` may have of each of their devices that has a limit.

    That is the sum of its units', and no more than the device has.
    """
    counts = Counter(unit.device.uuid for unit in units)
    totals = {unit.device.uuid: unit.device.memory_bytes for unit in units}
    found = []
    for uuid, count in counts.items():
        one = resource.memory.get(uuid)
        if one is not None:
            hard = min(count * one.hard, totals[uuid] or count * one.hard)
            limit = MemoryLimit(uuid, hard, count * one.soft, is_asked=one.is_asked)
            found.append(limit)
    return found


def granted(resource: Resource, units: Sequence[Unit]) -> Allocation:
    """Return the mounts and variables of the limits; nothing where there are none.

    Nothing for MPS either: its server bounds its clients itself.
    """
    if resource.sharing == MPS:
        return Allocation()
    found = limits(resource, units)
    mounts = (Mount(mount_path(VOCABULARY.memory_prefix, limit), "/dev/null") for limit in found)
    return Allocation(envs=_variables(found, units), mounts=tuple(mounts))


def hinted(resource: Resource, units: Sequence[Unit]) -> Allocation:
    """Return the variable that has the runtime tell frameworks of the limits, if it is wanted.

    The frameworks' own variables are the runtime's to set: from here they would replace those of
    the image.
    """
    entries = (resource.entries.get(unit.device.uuid) for unit in units)
    names = dict.fromkeys(name for entry in entries if entry is not None for name in entry.hints)
    return Allocation(envs={VOCABULARY.hints_env: ",".join(names)} if names else {})


def _variables(found: list[MemoryLimit], units: Sequence[Unit]) -> dict[str, str]:
    devices = {unit.device.uuid for unit in units}
    values = {(limit.hard // MIB, limit.soft // MIB) for limit in found}
    if len(found) < len(devices) or len(values) != 1:
        return {}
    ((hard, soft),) = values
    named = {VOCABULARY.memory_limit_env: hard, VOCABULARY.memory_request_env: soft}
    return {name: str(value) for name, value in named.items() if value}
