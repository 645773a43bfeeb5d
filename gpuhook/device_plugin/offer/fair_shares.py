# SPDX-License-Identifier: Apache-2.0
"""The division of a device's memory: the number of its units, and the limit of each.

Pure. Sizes are in bytes, limits in whole MiB. The reserve is the memory for the driver and the
contexts of a device, which no share includes.
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


def unit_size(entry: SharedResource, strategy: str) -> int | None:
    """Return the size of a unit, None if the entry has a number of replicas."""
    if strategy == MEMORY_UNITS:
        return entry.unit
    return None if entry.replicas else entry.replica_memory


def fitting(device: Device, size: int, reserve: int) -> int | None:
    """Return the number of units of `size` on a device, None if its memory is unknown."""
    total = device.memory_bytes
    return None if total is None or size <= 0 else max(0, total - reserve) // size


def unit_memory(share: Share, strategy: str, reserve: int) -> UnitMemory | None:
    """Return the limit of a unit of `share`, None for no limit.

    A device of unknown memory has no fair share; a limit in bytes applies nevertheless. Raises
    GH1847 if the limits exceed the memory of the device without `oversubscribe`, or if a share is
    empty.
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
        each = _part(share, 0)  # as in NVIDIA's plugin, which has no reserve
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
    """Return an equal part for each unit, None if the memory of the device is unknown."""
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
