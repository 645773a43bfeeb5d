# SPDX-License-Identifier: Apache-2.0
"""A plan of changes of a running container's memory limits: steps for the driver, and records.

The ledger is changed first: after a kill in the middle, a repair completes the change.
"""

from __future__ import annotations

from gpuhook.apply.live import hotplug_plan
from gpuhook.errors import GpuhookError, fault
from gpuhook.memory_limits import limit_state
from gpuhook.memory_limits.limit_state import unlimited
from gpuhook.memory_limits.warm import cgroup_limits, limit_records, memory_backend, memory_cgroup
from gpuhook.memory_limits.warm.limit_records import LimitRecord
from gpuhook.request.memory_request import MemoryLimit
from gpuhook.target.running_container import ContainerNote, Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from gpuhook.apply.live.hotplug_plan import HotplugPlan
    from gpuhook.apply.live.hotplug_steps import Live
    from gpuhook.containers.warm.driver_limit import DriverLimit
    from gpuhook.memory_limits.limit_state import LimitState
    from gpuhook.memory_limits.limit_worker import LimitDrivers
    from gpuhook.target.running_container import Target
    from gpuhook.vendors.interfaces.memory_interface import LimitDriver

_NOTED = "the driver already enforces it: only the ledger changes"


def directories(target: Target) -> list[str]:
    """Return the cgroups of a container to which limits apply. Raises GH1312, GH1313."""
    return memory_cgroup.directories(target.held.process, target.cgroup)


def clipped(drivers: LimitDrivers, limit: MemoryLimit) -> MemoryLimit:
    """Return a limit that is no larger than its GPU's memory."""
    driver = drivers.driver(limit.device)
    return cgroup_limits.with_hard(limit, driver.within(limit.device, limit.hard))


class LimitStep:
    """Sets the driver's limit on one GPU, or none; undo restores the earlier one.

    With `on_failure`, which gets the error, a failure does not stop the rest of a plan. `doubt` is
    why the limit is unknown: undo failed. "" otherwise.
    """

    def __init__(
        self,
        driver: LimitDriver,
        before: LimitState,
        wanted: MemoryLimit | None,
        cgroups: list[str],
        on_failure: Callable[[GpuhookError], None] | None = None,
    ) -> None:
        self._driver = driver
        self._on_failure = on_failure
        self.gpu = before.gpu  # a device id
        self._was = limit_state.amounts(MemoryLimit(before.gpu, before.hard, before.soft))
        self._wanted = wanted
        self._cgroups = cgroups
        self._before: list[tuple[str, DriverLimit | None]] = []
        self.doubt = ""

    def describe(self) -> list[str]:
        """Return the limit, and the one that it replaces."""
        now = limit_state.amounts(self._wanted)
        return [f"memory limit of {self.gpu}: {now}, was {self._was}"]

    def execute(self, live: Live) -> None:
        """Set it, and read it back; raises GH1250 to GH1255."""
        try:
            self._set(live)
        except GpuhookError as error:
            if self._on_failure is None:
                raise
            self._on_failure(error)

    def _set(self, live: Live) -> None:
        self._before = []
        for cgroup in self._cgroups:
            held = self._driver.get(self.gpu, cgroup)
            self._before.append((cgroup, held))
            try:
                self._hold(cgroup, self._wanted)
            except BaseException as error:
                self._put_back(live, error)
                raise

    def _put_back(self, live: Live, cause: BaseException) -> None:
        try:
            self.undo(live)
        except GpuhookError as error:
            raise fault("GH1751", cause=cause, left=error.message) from cause

    def undo(self, live: Live) -> None:  # noqa: ARG002 # an operation's signature
        """Restore the driver's earlier limits; a limit that it refused to change is as before."""
        try:
            for cgroup, held in reversed(self._before):
                before = MemoryLimit(self.gpu, held.hard, held.soft) if held else None
                if not limit_state.is_held(self._driver.get(self.gpu, cgroup), before):
                    self._hold(cgroup, before)
        except GpuhookError as error:
            self.doubt = f"{error.code}: {error.message}"
            raise

    def _hold(self, cgroup: str, limit: MemoryLimit | None) -> None:
        if limit is not None and limit_records.is_limited(limit):
            self._driver.set(self.gpu, cgroup, limit.hard, limit.soft)
        else:
            self._driver.clear(self.gpu, cgroup)


class Limits:
    """Changes of limits: `operations` for the driver, and the ledger's `records` by device."""

    def __init__(self) -> None:
        self.operations: list[LimitStep] = []
        self.records: dict[str, LimitRecord | None] = {}
        self.notes: list[str] = []

    def add(self, other: Limits) -> None:
        """Add the changes of `other`, of other GPUs."""
        self.operations += other.operations
        self.records.update(other.records)
        self.notes += other.notes

    def enter(self, entry: dict[str, Any]) -> None:
        """Put the records into a ledger entry."""
        if self.records:
            limit_records.enter(entry, self.records)


class LimitPlan(Limits):
    """Changes of the limits of one container. Raises GH1312, GH1313."""

    def __init__(self, target: Target, drivers: LimitDrivers) -> None:
        super().__init__()
        self._target = target
        self._drivers = drivers
        self._all_cgroups = directories(target)
        self._before: dict[str, LimitState] = {}

    def backend(self, gpu: str) -> str:
        """Return the backend of a GPU's limits."""
        return self._drivers.driver(gpu).backend_of(self._all_cgroups[-1])

    def cgroups(self, gpu: str) -> list[str]:
        """Return the cgroups of the container for which the backend needs limits."""
        return memory_backend.to_limit(self.backend(gpu), self._all_cgroups)

    def before(self, gpus: Iterable[str] = ()) -> list[LimitState]:
        """Return the current limits of `gpus`, of all in the ledger if none is named."""
        named = list(gpus)
        target = self._target
        found = limit_state.limits_of(
            target.entry, target.spec, named, self._drivers.driver, self._all_cgroups
        )
        return [limit for limit in found if not named or limit.gpu in named]

    def change(
        self,
        before: LimitState,
        wanted: MemoryLimit | None,
        record: LimitRecord | None,
        on_failure: Callable[[GpuhookError], None] | None = None,
    ) -> None:
        """Plan `wanted` for the driver and `record` for the ledger, if they differ.

        `on_failure` gets the driver's refusal, and may change the record; without it, the refusal
        ends the plan.
        """
        cgroups = self.cgroups(before.gpu)
        if record is not None:
            record.cgroups = cgroups
        self._before[before.gpu] = before
        is_set = not before.trouble and before.holds(wanted)
        if not is_set:
            driver = self._drivers.driver(before.gpu)
            self.operations.append(LimitStep(driver, before, wanted, cgroups, on_failure))
        is_optional = on_failure is not None and not is_set
        if is_optional or _document(record) != _document(before.record):
            self.records[before.gpu] = record

    def plan(self) -> HotplugPlan:
        """Return the plan; a ledger with the same records does not change."""
        plan = hotplug_plan.HotplugPlan()
        if self.records:
            plan.operations.append(ContainerNote(self._target, self.enter))
        plan.operations += self.operations
        return plan

    def report(self, *, is_dry: bool) -> Report:
        """Execute the plan unless `is_dry`, and return the report."""
        plan = self.plan()
        report = Report(self._target, plan, is_dry=is_dry)
        report.notes += self.notes
        if self.records and not self.operations:
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
        doubts = Limits()
        for step in self.operations:
            if step.doubt:
                before = self._before[step.gpu]
                limit = before.record.limit if before.record else before.granted
                record = LimitRecord(limit or unlimited(step.gpu), before.granted)
                record.fail(step.doubt, self._all_cgroups)
                doubts.records[step.gpu] = record
        if doubts.records:
            self._target.note(doubts.enter)


def _document(record: LimitRecord | None) -> dict[str, object] | None:
    return None if record is None else record.document()
