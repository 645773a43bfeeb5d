# SPDX-License-Identifier: Apache-2.0
"""How a device's memory is divided: how many units it holds, and what each of them may have.

Pure. Sizes are in bytes; limits are whole MiB, as a container is granted them. The reserve is what
the driver and the contexts of a device take, which no share counts.
"""

from __future__ import annotations

from gpuhook.device_plugin.config.grammar.memory_values import FAIR
from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS, MPS
from gpuhook.device_plugin.offer.offered_devices import UnitMemory
from gpuhook.errors import fault
from gpuhook.request.memory_request import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.sharing_section import SharedResource
    from gpuhook.device_plugin.offer.offered_devices import Device
    from gpuhook.device_plugin.offer.replica_sharing import Share


def size_of_one(entry: SharedResource, strategy: str) -> int | None:
    """Return the size by which the units of a device are counted, None where a number is given."""
    if strategy == MEMORY_UNITS:
        return entry.unit
    return None if entry.replicas else entry.replica_memory


def fitting(device: Device, size: int, reserve: int) -> int | None:
    """Return how many units of `size` a device holds, None where its memory is not known."""
    total = device.memory_bytes
    return None if total is None or size <= 0 else max(0, total - reserve) // size


def of_unit(share: Share, strategy: str, reserve: int) -> UnitMemory | None:
    """Return what a unit of `share` may have, None for no limit.

    Of a device whose memory nobody knows there is no fair share; what the configuration says in
    bytes holds all the same. Raises GH1847 where the limits add up to more than the device has and
    that is not wanted, or leave nothing to a unit.
    """
    entry = share.entry
    if entry is None:
        return None
    if strategy == MEMORY_UNITS:
        unit = _whole(entry.unit or 0)
        return UnitMemory(unit, unit, is_asked=True)
    if isinstance(entry.limit, int):
        return _bounded(share, _whole(entry.limit), reserve, may_exceed=entry.oversubscribe)
    if entry.limit == FAIR:
        return _fair(share, reserve)
    if entry.limit is None and strategy == MPS and share.is_divided:
        each = _part(share, 0)  # the figures of the reference, which knows no reserve
        return UnitMemory(each, each) if each else None
    return None


def _bounded(share: Share, hard: int, reserve: int, *, may_exceed: bool) -> UnitMemory:
    part, total = _part(share, reserve), share.device.memory_bytes
    if part is None or total is None:
        return UnitMemory(hard, 0)
    if not may_exceed and hard * share.replicas > total - reserve:
        raise _too_much(share, hard, total, reserve)
    return UnitMemory(hard, min(hard, part))


def _fair(share: Share, reserve: int) -> UnitMemory | None:
    part, total = _part(share, reserve), share.device.memory_bytes
    if part is None or total is None:
        return None
    if not part:
        raise _too_much(share, MIB, total, reserve)
    return UnitMemory(part, part)


def _part(share: Share, reserve: int) -> int | None:
    """Return what each unit has if all have the same, None where nobody knows of what."""
    total = share.device.memory_bytes
    return None if total is None else _whole(max(0, total - reserve) // share.replicas)


def _whole(size: int) -> int:
    return size // MIB * MIB


def _too_much(share: Share, each: int, total: int, reserve: int) -> Exception:
    model = share.model
    if reserve >= total:
        reason = f"a reserve of {reserve // MIB} MiB leaves nothing of the {total // MIB} MiB of a "
        reason += model
        hint = "lower gpuhook.memoryReserve"
    else:
        together = share.replicas * each // MIB
        less = f", less {reserve // MIB} MiB of reserve" if reserve else ""
        reason = f"{share.replicas} replicas of {each // MIB} MiB are {together} MiB, and a "
        reason += f"{model} has only {total // MIB} MiB{less}"
        hint = "lower `replicas` or `memory`, or set `oversubscribe: true` to exceed it"
    where = {"entry": share.where, "resource": share.resource}
    return fault("GH1847", **where, reason=reason, hint=hint)
