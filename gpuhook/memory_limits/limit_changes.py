# SPDX-License-Identifier: Apache-2.0
"""Changes of a running container's memory limits: set and clear them. All or nothing."""

from __future__ import annotations

from gpuhook.apply.live import hotplug_plan
from gpuhook.containers.warm.driver_limit import DMEM
from gpuhook.errors import fault
from gpuhook.memory_limits import limit_state
from gpuhook.memory_limits.limit_plan import LimitPlan, Limits
from gpuhook.memory_limits.limit_state import unlimited
from gpuhook.memory_limits.warm import memory_backend
from gpuhook.memory_limits.warm.limit_records import LimitRecord
from gpuhook.request.memory_request import MemoryLimit, amount
from gpuhook.target.running_container import ContainerNote, Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.errors import GpuhookError
    from gpuhook.memory_limits.limit_state import LimitState
    from gpuhook.memory_limits.limit_worker import LimitDrivers
    from gpuhook.target.running_container import Target
    from gpuhook.vendors.usage.limit_device import LimitDevice

_GRANTED = "{gpu} has its granted limit, {limit}: clear --all also removes it"
_LIFTED = "{gpu}: the granted limit, {limit}, is removed: the container is now unlimited"
_ABOVE = "{}: it uses {}, more than {}: the driver rejects a limit below the current use"
_LEFT_OUT = "{}: its granted guarantee of {} is not set: {}"
_RESERVED = (
    "{gpu}: the kernel's dmem controller enforces this node's limits: the {soft} guaranteed to the "
    "container remain reserved in the parent cgroups when it exits. `gpuhook limits clear "
    "{container}` before that releases them"
)
_FORGOTTEN = "only the ledger changes, not the driver: {}"
# The driver is too old, and cgroup v1; a partition, no region, no controller.
UNHELD = ("GH1250", "GH1312", "GH2540", "GH2541", "GH2542", "GH2545")


class Wish:
    """The values of `gpuhook limits set`, in bytes; a `soft` of None leaves the earlier one."""

    def __init__(self, hard: int, soft: int | None = None) -> None:
        self.hard = hard
        self.soft = soft


def set_limits(
    target: Target, drivers: LimitDrivers, gpus: Sequence[LimitDevice], wish: Wish, *, is_dry: bool
) -> Report:
    """Limit a container's memory of `gpus`. All of them or none.

    Raises GH1782 for a limit above the card's memory, and the driver's refusals.
    """
    for gpu in gpus:
        if gpu.memory_bytes is not None and wish.hard > gpu.memory_bytes:
            whole, limit = amount(gpu.memory_bytes), amount(wish.hard)
            raise fault("GH1782", limit=limit, gpu=gpu.id, whole=whole)
    plan = LimitPlan(target, drivers)
    for before in plan.before(gpu.id for gpu in gpus):
        wanted = _wished(before, wish)
        plan.change(before, wanted, LimitRecord(wanted, before.granted, _left_out(before, wanted)))
        if wanted.soft and plan.backend(before.gpu) == DMEM:
            soft, container = amount(wanted.soft), target.found.id
            plan.notes.append(_RESERVED.format(gpu=before.gpu, soft=soft, container=container))
        used = before.used or 0
        if is_dry and used > wanted.hard:  # else the driver refuses it
            above = amount(used), amount(wanted.hard)
            plan.notes.append(_ABOVE.format(before.gpu, *above))
    return plan.report(is_dry=is_dry)


def clear(
    target: Target,
    drivers: LimitDrivers,
    gpus: Sequence[str],
    guarantee: str,
    *,
    lifts_grants: bool,
    is_dry: bool,
) -> Report:
    """Remove limits that were set: the container's grant applies again, or none.

    `guarantee` is the setting limits.guarantee, for a grant. With `lifts_grants` no limit applies,
    whatever the grant is. Raises the driver's refusals.
    """
    plan = LimitPlan(target, drivers)
    for before in plan.before(gpus):
        granted = before.granted
        if granted is None:
            plan.change(before, None, None)
        elif lifts_grants:
            plan.change(before, None, LimitRecord(unlimited(before.gpu), granted))
            plan.notes.append(_LIFTED.format(gpu=before.gpu, limit=limit_state.amounts(granted)))
        else:
            kept, reason = memory_backend.supported_limit(
                granted, guarantee, plan.backend(before.gpu)
            )
            if before.record is not None or not before.holds(kept):
                plan.change(before, kept, LimitRecord(kept, granted, reason))
            plan.notes.append(_GRANTED.format(gpu=before.gpu, limit=limit_state.amounts(granted)))
            if reason:
                plan.notes.append(_LEFT_OUT.format(before.gpu, amount(granted.soft), reason))
    return plan.report(is_dry=is_dry)


def lift_in_ledger(
    target: Target, gpus: Sequence[str], reason: GpuhookError, *, is_dry: bool
) -> Report:
    """Lift the limits of a container on `gpus`, whose driver cannot be changed for `reason`."""
    lifted = Limits()
    for before in limit_state.limits_of(target.entry, target.spec, gpus, lambda _: None, []):
        granted, now = before.granted, before.record
        if before.gpu not in gpus or (granted is None and now is None):
            continue
        if granted is not None:
            lifted.notes.append(_LIFTED.format(gpu=before.gpu, limit=limit_state.amounts(granted)))
        if now is None or now.is_limited:
            record = LimitRecord(unlimited(before.gpu), granted) if granted else None
            lifted.records[before.gpu] = record
    plan = hotplug_plan.HotplugPlan()
    if lifted.records:
        plan.operations.append(ContainerNote(target, lifted.enter))
        lifted.notes.append(_FORGOTTEN.format(reason.message))
    report = Report(target, plan, is_dry=is_dry)
    report.notes += lifted.notes
    if not is_dry:
        plan.execute(target.held)
    return report


def _left_out(before: LimitState, wanted: MemoryLimit) -> str:
    """Return why the guarantee is still left out; "" if one is requested now."""
    return before.record.guarantee if before.record and not wanted.soft else ""


def _wished(before: LimitState, wish: Wish) -> MemoryLimit:
    soft = wish.soft
    if soft is None:
        soft = before.record.limit.soft if before.record else before.soft
    is_asked = before.granted is not None and before.granted.is_asked
    return MemoryLimit(before.gpu, wish.hard, soft, is_asked=is_asked)
