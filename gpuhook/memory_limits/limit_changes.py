# SPDX-License-Identifier: Apache-2.0
"""Changes of a running container's memory limits: set, clear, and restore lost ones.

All or nothing. The ledger is changed first: after a kill in the middle, a repair completes the
change.
"""

from __future__ import annotations

from gpuhook.apply.live import hotplug_plan
from gpuhook.errors import fault
from gpuhook.host.hot import settings
from gpuhook.memory_limits import limit_state
from gpuhook.memory_limits.limit_state import HoldMemory, unlimited
from gpuhook.memory_limits.warm import cgroup_limits, limit_records, memory_backend, memory_cgroup
from gpuhook.memory_limits.warm.limit_records import LimitRecord
from gpuhook.request.memory_request import MemoryLimit, amount
from gpuhook.target.running_container import ContainerNote, Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpuhook.apply.live.hotplug_plan import HotplugPlan
    from gpuhook.memory_limits.limit_state import LimitState
    from gpuhook.memory_limits.nvml_worker import Driver
    from gpuhook.target.running_container import Target
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu

    Records = dict[str, "LimitRecord | None"]

_GRANTED = "{gpu} has its granted limit, {limit}: clear --all lifts that, too"
LIFTED = "{gpu}: the granted limit, {limit}, is lifted: nothing limits the container now"
_ABOVE = "{}: it uses {} now, more than {}: a driver refuses a limit below that"
_LEFT_OUT = "{}: its granted guarantee of {} is left out: {}"
_RESERVED = (
    "{gpu}: the kernel's dmem controller enforces this node's limits: the {soft} guaranteed to the "
    "container remain reserved in the cgroups above when it ends. `gpuhook limits clear "
    "{container}` before that releases them"
)
_NOTED = "the driver already enforces it: only the ledger changes"


class Wish:
    """The values of `gpuhook limits set`, in bytes; a `soft` of None leaves the earlier one."""

    def __init__(self, hard: int, soft: int | None = None) -> None:
        self.hard = hard
        self.soft = soft


def directories(target: Target) -> list[str]:
    """Return the cgroups of a container to which limits apply. Raises GH1312, GH1313."""
    return memory_cgroup.directories(target.held.process, target.cgroup)


def set_limits(
    target: Target, driver: Driver, gpus: Sequence[Gpu], wish: Wish, *, is_dry: bool
) -> Report:
    """Limit a container's memory of `gpus`. All of them or none.

    Raises GH1782 for a limit above the card's memory, and the driver's refusals.
    """
    for gpu in gpus:
        if gpu.memory_bytes is not None and wish.hard > gpu.memory_bytes:
            whole, limit = amount(gpu.memory_bytes), amount(wish.hard)
            raise fault("GH1782", limit=limit, gpu=gpu.uuid, whole=whole)
    change = _Change(target, driver)
    notes = []
    for before in change.before(str(gpu.uuid) for gpu in gpus):
        wanted = _wished(before, wish)
        change.make(before, wanted, LimitRecord(wanted, before.granted, _left_out(before, wanted)))
        if wanted.soft and change.backend == memory_backend.DMEM:
            soft = amount(wanted.soft)
            notes.append(_RESERVED.format(gpu=before.gpu, soft=soft, container=target.found.id))
        used = before.used or 0
        if is_dry and used > wanted.hard:  # else the driver refuses it
            above = amount(used), amount(wanted.hard)
            notes.append(_ABOVE.format(before.gpu, *above))
    return change.done(notes, is_dry=is_dry)


def clear(
    target: Target,
    driver: Driver,
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
    change = _Change(target, driver)
    notes = []
    for before in change.before(gpus):
        granted = before.granted
        if granted is None:
            change.make(before, None, None)
        elif lifts_grants:
            change.make(before, None, LimitRecord(unlimited(before.gpu), granted))
            notes.append(LIFTED.format(gpu=before.gpu, limit=limit_state.amounts(granted)))
        else:
            kept, reason = memory_backend.supported_limit(granted, guarantee, change.backend)
            if before.record is not None or not before.holds(kept):
                change.make(before, kept, LimitRecord(kept, granted, reason))
            notes.append(_GRANTED.format(gpu=before.gpu, limit=limit_state.amounts(granted)))
            if reason:
                notes.append(_LEFT_OUT.format(before.gpu, amount(granted.soft), reason))
    return change.done(notes, is_dry=is_dry)


def lost(target: Target, driver: Driver) -> tuple[HotplugPlan, list[str]]:
    """Return the plan that restores the ledger's limits in the driver.

    And the GPUs whose limits the driver does not report, with reasons. Raises GH1312, GH1313.
    """
    return _again(target, driver, by=limit_records.DRIVER)


def never_held(target: Target, driver: Driver, guarantee: str) -> HotplugPlan:
    """Return the plan that tries limits again that the driver refused before.

    The driver may be another one by now. `guarantee` is the setting. Raises as lost() does.
    """
    return _again(target, driver, guarantee, by="")[0]


def _again(
    target: Target, driver: Driver, guarantee: str = settings.ALWAYS, *, by: str
) -> tuple[HotplugPlan, list[str]]:
    change, notes = _Change(target, driver), []
    for before in change.before(()):
        record = before.record
        if record is None or record.by != by:
            continue
        if before.trouble:
            notes.append(f"memory limit of {before.gpu}: {before.trouble}")
        else:
            wanted, granted = record.limit, record.granted
            if not by:  # it may have been recorded while the card's memory was unknown
                wanted = clipped(driver, wanted)
                granted = clipped(driver, granted) if granted else None
            limit, reason = memory_backend.supported_limit(wanted, guarantee, change.backend)
            again: LimitRecord | None = LimitRecord(limit, granted, reason or record.guarantee)
            if record.granted is None and not record.is_limited:
                again = None  # the driver's limit was unknown
            change.make(before, limit, again)
    return change.plan(), notes


def clipped(driver: Driver, limit: MemoryLimit) -> MemoryLimit:
    """Return a limit that is no larger than its GPU's memory."""
    return cgroup_limits.with_hard(limit, driver.within(limit.device, limit.hard))


def _left_out(before: LimitState, wanted: MemoryLimit) -> str:
    """Return why the guarantee is still left out; "" if one is requested now."""
    return before.record.guarantee if before.record and not wanted.soft else ""


def _wished(before: LimitState, wish: Wish) -> MemoryLimit:
    soft = wish.soft
    if soft is None:
        soft = before.record.limit.soft if before.record else before.soft
    is_asked = before.granted is not None and before.granted.is_asked
    return MemoryLimit(before.gpu, wish.hard, soft, is_asked=is_asked)


class _Change:
    """The plan of a change of limits: the ledger's records, and the driver's steps."""

    def __init__(self, target: Target, driver: Driver) -> None:
        self._target = target
        self._driver = driver
        self._cgroups = directories(target)
        self._steps: list[HoldMemory] = []
        self._records: Records = {}
        self._before: dict[str, LimitState] = {}

    @property
    def backend(self) -> str:
        """Return the driver's backend, which is known after a call about a GPU: before()."""
        return memory_backend.backend_of(self._cgroups[-1])

    def before(self, gpus: Iterable[str]) -> list[LimitState]:
        """Return the current limits of `gpus`, of all in the ledger if none is named."""
        named = list(gpus)
        target = self._target
        found = limit_state.limits_of(target.entry, target.spec, named, self._driver, self._cgroups)
        return [limit for limit in found if not named or limit.gpu in named]

    def make(
        self, before: LimitState, wanted: MemoryLimit | None, record: LimitRecord | None
    ) -> None:
        """Plan `wanted` for the driver and `record` for the ledger, if they differ."""
        cgroups = memory_backend.to_limit(self.backend, self._cgroups)
        if record is not None:
            record.cgroups = cgroups
        self._before[before.gpu] = before
        if before.trouble or not before.holds(wanted):
            self._steps.append(HoldMemory(self._driver, before, wanted, cgroups))
        if _document(record) != _document(before.record):
            self._records[before.gpu] = record

    def plan(self) -> HotplugPlan:
        """Return the plan; a ledger with the same records does not change."""
        plan = hotplug_plan.HotplugPlan()
        if self._records:
            records = self._records
            change = _entering(records)
            plan.operations.append(ContainerNote(self._target, change))
        plan.operations += self._steps
        return plan

    def done(self, notes: list[str], *, is_dry: bool) -> Report:
        """Execute the plan, and return the report."""
        plan = self.plan()
        report = Report(self._target, plan, is_dry=is_dry)
        report.notes += notes
        if self._records and not self._steps:
            report.notes.append(_NOTED)
        if not is_dry:
            try:
                plan.execute(self._target.held)
            except BaseException:
                self._doubt()
                raise
        return report

    def _doubt(self) -> None:
        """Record the GPUs whose limits are unknown; a repair sets the earlier ones."""
        doubts = {step.gpu: step.doubt for step in self._steps if step.doubt}
        if doubts:
            records: Records = {
                gpu: _doubtful(self._before[gpu], self._cgroups, why) for gpu, why in doubts.items()
            }
            self._target.note(_entering(records))


def _doubtful(before: LimitState, cgroups: list[str], why: str) -> LimitRecord:
    """Return the record of a GPU whose earlier limit the driver may or may not enforce."""
    limit = before.record.limit if before.record else before.granted
    record = LimitRecord(limit or unlimited(before.gpu), before.granted)
    record.fail(why, cgroups)
    return record


def _entering(records: Records) -> Callable[[dict[str, object]], None]:
    return lambda entry: limit_records.enter(entry, records)


def _document(record: LimitRecord | None) -> dict[str, object] | None:
    return None if record is None else record.document()
