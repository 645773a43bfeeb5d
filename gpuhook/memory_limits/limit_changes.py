# SPDX-License-Identifier: Apache-2.0
"""Memory limits of a running container: set, cleared, and put back where the driver lost them.

All or nothing. The ledger is told first: who is killed in the middle leaves what a repair finishes.
"""

from __future__ import annotations

from gpuhook.apply.live import hotplug_plan
from gpuhook.errors import GpuhookError, fault
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
    from gpuhook.memory_limits.nvml_worker import Limits
    from gpuhook.target.running_container import Target
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu

    Records = dict[str, "LimitRecord | None"]

_GRANTED = "{gpu} has what it was granted, {limit}: clear --all lifts that, too"
LIFTED = "{gpu}: what it was granted, {limit}, is lifted: nothing bounds the container now"
_ABOVE = "{}: it uses {} now, more than {}: a driver takes no limit below that"
_LEFT_OUT = "{}: the {} that its grant guarantees it are left out: {}"
_STAYS = (
    "{gpu}: this node's limits are held by the kernel's dmem controller: the {soft} kept for the "
    "container stay reserved in the cgroups above when it ends. `gpuhook limits clear {container}` "
    "before that gives them back"
)
_NOTED = "the driver holds it already: the ledger is told"


class Wish:
    """What `gpuhook limits set` asks for, in bytes; a `soft` of None leaves what there was."""

    def __init__(self, hard: int, soft: int | None = None) -> None:
        self.hard = hard
        self.soft = soft


def directories(target: Target) -> list[str]:
    """Return the cgroups of a container that limits are for. Raises GH1312, GH1313."""
    return memory_cgroup.directories(target.held.process, target.cgroup)


def _to_change(target: Target) -> list[str]:
    """Return them. GH1787 in place of GH1312: what a create may do about it is no help here."""
    try:
        return directories(target)
    except GpuhookError as error:
        if error.code != "GH1312":
            raise
        raise fault("GH1787") from error


def set_limits(
    target: Target, driver: Limits, gpus: Sequence[Gpu], wish: Wish, *, is_dry: bool
) -> Report:
    """Limit what a container may have of `gpus`. All of them or none.

    Raises GH1782 for a limit that is more than the card, and what the driver refuses.
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
            notes.append(_STAYS.format(gpu=before.gpu, soft=soft, container=target.found.id))
        used = before.used or 0
        if is_dry and used > wanted.hard:  # else the driver's refusal says it
            above = amount(used), amount(wanted.hard)
            notes.append(_ABOVE.format(before.gpu, *above))
    return change.done(notes, is_dry=is_dry)


def clear(
    target: Target,
    driver: Limits,
    gpus: Sequence[str],
    guarantee: str,
    *,
    lifts_grants: bool,
    is_dry: bool,
) -> Report:
    """Take away what was set: what a container was granted holds again, or nothing.

    `guarantee` is the setting limits.guarantee, for a grant. With `lifts_grants` nothing holds,
    whatever it was granted. Raises what the driver refuses.
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


def lost(target: Target, driver: Limits) -> tuple[HotplugPlan, list[str]]:
    """Return the plan that makes the driver hold what the ledger says that it holds.

    Beside it, of which GPUs the driver does not tell, and why. Raises GH1312, GH1313.
    """
    return _again(target, driver, by=limit_records.DRIVER)


def never_held(target: Target, driver: Limits, guarantee: str) -> HotplugPlan:
    """Return the plan that tries the limits again that the driver did not take at the time.

    It may be another driver by now. `guarantee` is the setting. Raises as lost() does.
    """
    return _again(target, driver, guarantee, by="")[0]


def _again(
    target: Target, driver: Limits, guarantee: str = settings.ALWAYS, *, by: str
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
            if not by:  # it may have been noted while no driver told what the card has
                wanted = clipped(driver, wanted)
                granted = clipped(driver, granted) if granted else None
            limit, reason = memory_backend.supported_limit(wanted, guarantee, change.backend)
            again: LimitRecord | None = LimitRecord(limit, granted, reason or record.guarantee)
            if record.granted is None and not record.is_limited:
                again = None  # nobody knew whether the driver holds anything
            change.make(before, limit, again)
    return change.plan(), notes


def clipped(driver: Limits, limit: MemoryLimit) -> MemoryLimit:
    """Return a limit that is no more than its GPU has."""
    return cgroup_limits.with_hard(limit, driver.within(limit.device, limit.hard))


def _left_out(before: LimitState, wanted: MemoryLimit) -> str:
    """Return why a guarantee is left out still; one that is asked for now is not."""
    return before.record.guarantee if before.record and not wanted.soft else ""


def _wished(before: LimitState, wish: Wish) -> MemoryLimit:
    soft = wish.soft
    if soft is None:
        soft = before.record.limit.soft if before.record else before.soft
    is_asked = before.granted is not None and before.granted.is_asked
    return MemoryLimit(before.gpu, wish.hard, soft, is_asked=is_asked)


class _Change:
    """The plan of a change of limits: the ledger's records, and the driver's steps."""

    def __init__(self, target: Target, driver: Limits) -> None:
        self._target = target
        self._driver = driver
        self._cgroups = _to_change(target)
        self._steps: list[HoldMemory] = []
        self._records: Records = {}
        self._before: dict[str, LimitState] = {}

    @property
    def backend(self) -> str:
        """Return the driver's backend; it knows its own once a GPU was asked about: before()."""
        return memory_backend.backend_of(self._cgroups[-1])

    def before(self, gpus: Iterable[str]) -> list[LimitState]:
        """Return what there is on `gpus` now, of all that the ledger has where none is named."""
        named = list(gpus)
        target = self._target
        found = limit_state.limits_of(target.entry, target.spec, named, self._driver, self._cgroups)
        return [limit for limit in found if not named or limit.gpu in named]

    def make(
        self, before: LimitState, wanted: MemoryLimit | None, record: LimitRecord | None
    ) -> None:
        """Have the driver hold `wanted` and the ledger `record`, where they do not."""
        cgroups = memory_backend.to_limit(self.backend, self._cgroups)
        if record is not None:
            record.cgroups = cgroups
        self._before[before.gpu] = before
        if before.trouble or not before.holds(wanted):
            self._steps.append(HoldMemory(self._driver, before, wanted, cgroups))
        if _document(record) != _document(before.record):
            self._records[before.gpu] = record

    def plan(self) -> HotplugPlan:
        """Return the plan; a ledger that has it already is not told."""
        plan = hotplug_plan.HotplugPlan()
        if self._records:
            records = self._records
            change = _entering(records)
            plan.operations.append(ContainerNote(self._target, change))
        plan.operations += self._steps
        return plan

    def done(self, notes: list[str], *, is_dry: bool) -> Report:
        """Carry the plan out, and return what was done."""
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
        """Note of which GPUs nobody knows what the driver holds; a repair sets what was before."""
        doubts = {step.gpu: step.doubt for step in self._steps if step.doubt}
        if doubts:
            records: Records = {
                gpu: _doubtful(self._before[gpu], self._cgroups, why) for gpu, why in doubts.items()
            }
            self._target.note(_entering(records))


def _doubtful(before: LimitState, cgroups: list[str], why: str) -> LimitRecord:
    """Return the record of a GPU of which the driver may hold what there was before, or may not."""
    limit = before.record.limit if before.record else before.granted
    record = LimitRecord(limit or unlimited(before.gpu), before.granted)
    record.by, record.trouble, record.cgroups = "", why, cgroups
    return record


def _entering(records: Records) -> Callable[[dict[str, object]], None]:
    return lambda entry: limit_records.enter(entry, records)


def _document(record: LimitRecord | None) -> dict[str, object] | None:
    return None if record is None else record.document()
