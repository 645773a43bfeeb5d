# SPDX-License-Identifier: Apache-2.0
"""What the simulated driver decides on memory: who has how much, and who may allocate more.

An allocation is refused that would go above the hard limit of its cgroup, above the card, or into
what soft limits promise to other cgroups; a cgroup within its own soft limit has its promise. With
the driver's own account the limit of the nearest cgroup applies, with the kernel's controller those
of all above count. Soft limits are promises of the former here: a driver would end the processes of
an MPS server's clients for them, which comes to the same. The latter keeps none in this simulation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.simulated import stub_limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.simulated.node import SimulatedNode
    from tests.simulated.stub_limits import Kept


@dataclass(frozen=True, slots=True)
class Held:
    """The memory of one process on one device, in bytes. `cgroups` are inodes, its own first."""

    pid: int
    uuid: str
    size: int
    cgroups: tuple[int, ...]


def refusal(
    node: SimulatedNode, held: Iterable[Held], uuid: str, size: int, cgroups: list[int]
) -> str | None:
    """Return why a process of `cgroups` cannot allocate `size` more bytes, None if it can.

    A device that the profile does not have, or a lost one, has no memory.
    """
    capacity = capacity_of(node, uuid)
    if capacity is None:
        return "no such device"
    limits = [limit for limit in stub_limits.known(node) if limit.uuid == uuid]
    of_device = [one for one in held if one.uuid == uuid]
    rule = fits_all if stub_limits.is_dmem(node, uuid) else fits
    return None if rule(capacity, limits, of_device, size, cgroups) else "out of memory"


def reported_memory(
    node: SimulatedNode, held: Iterable[Held], uuid: str, cgroups: Sequence[int]
) -> tuple[int, int]:
    """Return the total and the free bytes that CUDA reports to a process of `cgroups`.

    They are capped to the hard limit: of its very own cgroup by the kernel's controller, of the
    nearest that has one by the driver's account.
    """
    capacity = capacity_of(node, uuid) or 0
    of_device = [one for one in held if one.uuid == uuid]
    free = capacity - sum(one.size for one in of_device)
    limits = {limit.inode: limit for limit in stub_limits.known(node) if limit.uuid == uuid}
    counting = cgroups[:1] if stub_limits.is_dmem(node, uuid) else cgroups
    own = next((limits[inode] for inode in counting if inode in limits), None)
    if own is None:
        return capacity, free
    return min(capacity, own.hard), min(free, own.hard - _used(of_device, own))


def fits_all(
    capacity: int, limits: Sequence[Kept], held: Sequence[Held], size: int, cgroups: Sequence[int]
) -> bool:
    """Return the result of fits() if the hard limits of all cgroups above apply."""
    own = [limit for limit in limits if limit.inode in cgroups]
    if any(size + _used(held, limit) > limit.hard for limit in own):
        return False
    return size <= capacity - sum(one.size for one in held)


def fits(
    capacity: int, limits: Sequence[Kept], held: Sequence[Held], size: int, cgroups: Sequence[int]
) -> bool:
    """Return whether a process of `cgroups` may have `size` more bytes of one device.

    The limit of the nearest cgroup applies.
    """
    by_cgroup = {limit.inode: limit for limit in limits}
    own = next((by_cgroup[inode] for inode in cgroups if inode in by_cgroup), None)
    would_use = size + (_used(held, own) if own else 0)
    if own and would_use > own.hard:
        return False
    free = capacity - sum(one.size for one in held)
    if own and would_use <= own.soft:
        return size <= free
    others = [limit for limit in limits if limit.inode not in cgroups]
    return size <= free - sum(max(0, limit.soft - _used(held, limit)) for limit in others)


def capacity_of(node: SimulatedNode, uuid: str) -> int | None:
    """Return the bytes of the device that all processes together may allocate.

    That is its memory without what is reserved or used by others in the profile.
    """
    own: dict[str, str] = {}
    for line in Path(node.nvml_profile).read_text("utf-8").splitlines():
        key, _, value = line.partition(" ")
        if key in ("gpu", "instance"):
            if own.get("uuid") == uuid:
                break
            own = {}
        own[key] = value
    if own.get("uuid") != uuid or own.get("lost_after") == "0" or "memory_bytes" not in own:
        return None
    unavailable = (int(own.get(key, "0")) for key in ("reserved", "used"))
    return int(own["memory_bytes"]) - sum(unavailable)


def _used(held: Iterable[Held], limit: Kept) -> int:
    return sum(one.size for one in held if limit.inode in one.cgroups)
