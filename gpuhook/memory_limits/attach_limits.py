# SPDX-License-Identifier: Apache-2.0
"""The memory limits of GPUs that come to a running container, and go: set before, cleared after.

What it was granted counts as at its create: a device plugin's mounts, its own variables. Where the
driver does not take it, limits.onFailure decides: the GPU is not attached, or a note says so.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager

from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import state
from gpuhook.host.hot.settings import ALWAYS
from gpuhook.memory_limits import limit_changes, limit_state
from gpuhook.memory_limits.hot import container_limits
from gpuhook.memory_limits.limit_state import HoldMemory, unlimited
from gpuhook.memory_limits.nvml_worker import PatientDriver
from gpuhook.memory_limits.warm import limit_records, memory_backend
from gpuhook.memory_limits.warm.limit_records import LimitRecord
from gpuhook.request import parse
from gpuhook.request.memory_request import MemoryLimit, amount
from gpuhook.vendors.nvidia.hot import node_json, vocabulary
from gpuhook.vendors.nvidia.warm import nvml_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from gpuhook.apply.live.hotplug_steps import Live, Operation
    from gpuhook.entry.plan_context import PlanContext
    from gpuhook.memory_limits.limit_changes import Wish
    from gpuhook.memory_limits.limit_state import LimitState
    from gpuhook.request.resolve import Grant
    from gpuhook.target.running_container import Target

_UNLIMITED = "{} is without its memory limit, as limits.onFailure says: {}"
_STAYS = "the driver may still hold a memory limit of {}: {}"


class Limits:
    """What is done about limits: `operations` for a plan, and the ledger's `records` of it."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.records: dict[str, LimitRecord | None] = {}
        self.notes: list[str] = []

    def enter(self, entry: dict[str, Any]) -> None:
        """Note in the ledger what holds, or is going to."""
        if self.records:
            limit_records.enter(entry, self.records)


class _Tried:
    """A step without which the rest of a plan goes on; `failed` is told why it was not done."""

    def __init__(self, step: HoldMemory, failed: Callable[[GpuhookError], None]) -> None:
        self._step = step
        self._failed = failed

    def describe(self) -> list[str]:
        """Return what the step does."""
        return self._step.describe()

    def execute(self, live: Live) -> None:
        """Do it if that can be done."""
        try:
            self._step.execute(live)
        except GpuhookError as error:
            self._failed(error)

    def undo(self, live: Live) -> None:
        """Undo it."""
        self._step.undo(live)


@contextmanager
def coming(
    target: Target, context: PlanContext, grant: Grant, names: Iterable[str], wish: Wish | None
) -> Iterator[Limits]:
    """Give the limits of the GPUs of `grant`, asked for by `names`, that come to a container.

    `wish` counts in place of what the container was granted. One with a limit already keeps that.
    Raises GH1022 to GH1024, GH1782, and what limits.onFailure says that it is a reason to refuse.
    """
    wanted = _wanted(target, context, grant, names, wish)
    found = Limits()
    if not wanted:
        yield found
        return
    chosen = context.settings
    is_asked = any(limit.is_asked for limit in wanted)
    required = container_limits.is_required(chosen.limits_on_failure, is_asked=is_asked)
    with ExitStack() as stack:
        try:
            driver, own = _opened(stack, context), limit_changes.directories(target)
            wanted = [limit_changes.clipped(driver, limit) for limit in wanted]
            pairs = _with_before(target, wanted, driver, own)
        except (GpuhookError, OSError) as error:
            if required:
                raise
            for limit, before in _with_before(target, wanted):
                record = found.records[limit.device] = LimitRecord(limit, before.granted)
                _fail(found, record, error)
        else:
            backend = memory_backend.backend_of(own[-1])
            cgroups = memory_backend.to_limit(backend, own)
            for limit, before in pairs:
                # A guarantee that is wished for is one that somebody wants here and now.
                policy = chosen.limits_guarantee if wish is None else ALWAYS
                kept, reason = memory_backend.supported_limit(limit, policy, backend)
                record = LimitRecord(kept, before.granted if wish else limit, reason)
                record.cgroups = cgroups
                _add(found, driver, before, record, required=required)
        yield found


def _with_before(
    target: Target,
    wanted: list[MemoryLimit],
    driver: PatientDriver | None = None,
    cgroups: list[str] | None = None,
) -> list[tuple[MemoryLimit, LimitState]]:
    """Return each limit with what there is on its GPU now."""
    gpus = [limit.device for limit in wanted]
    found = limit_state.limits_of(target.entry, target.spec, gpus, driver, cgroups)
    now = {before.gpu: before for before in found}
    return [(limit, now[limit.device]) for limit in wanted]


def _add(
    found: Limits, driver: PatientDriver, before: LimitState, record: LimitRecord, *, required: bool
) -> None:
    limit = record.limit
    if before.record is None or record.document() != before.record.document():
        found.records[limit.device] = record
    if not before.trouble and before.holds(limit):
        return
    step = HoldMemory(driver, before, limit, record.cgroups)
    if required:
        found.operations.append(step)
        return
    found.records[limit.device] = record
    found.operations.append(_Tried(step, lambda error: _fail(found, record, error)))


def _fail(found: Limits, record: LimitRecord, error: GpuhookError | OSError) -> None:
    code = f"{error.code}: " if isinstance(error, GpuhookError) else ""
    record.by, record.trouble, record.cgroups = "", f"{code}{error}", []
    found.notes.append(_UNLIMITED.format(record.limit.device, record.trouble))


@contextmanager
def going(target: Target, context: PlanContext, is_gone: Callable[[str], bool]) -> Iterator[Limits]:
    """Give how the limits of GPUs that go are cleared; `is_gone` tells of a GPU, by its UUID.

    A GPU is taken away all the same where that fails: the ledger knows then that nobody knows.
    """
    found = Limits()
    gone = {gpu: one for gpu, one in limit_records.records_of(target.entry).items() if is_gone(gpu)}
    found.records.update(dict.fromkeys(gone))
    held = {gpu for gpu, one in gone.items() if one.by == limit_records.DRIVER and one.is_limited}
    with ExitStack() as stack:
        if held:
            try:
                driver, own = _opened(stack, context), limit_changes.directories(target)
                known = limit_state.limits_of(target.entry, None, (), driver, own)
                cgroups = memory_backend.to_limit(memory_backend.backend_of(own[-1]), own)
                for before in known:
                    if before.gpu in held and (before.trouble or not before.holds(None)):
                        step = HoldMemory(driver, before, None, cgroups)
                        found.operations.append(_Tried(step, _doubting(found, before.gpu, cgroups)))
            except (GpuhookError, OSError) as error:
                for gpu in sorted(held):
                    _doubting(found, gpu, [])(error)
        yield found


def _doubting(
    found: Limits, gpu: str, cgroups: list[str]
) -> Callable[[GpuhookError | OSError], None]:
    """Return what notes that nobody knows what the driver holds: a repair tries to clear it."""

    def doubt(error: GpuhookError | OSError) -> None:
        record = found.records[gpu] = LimitRecord(unlimited(gpu), None)
        code = f"{error.code}: " if isinstance(error, GpuhookError) else ""
        record.by, record.trouble, record.cgroups = "", f"{code}{error}", cgroups
        found.notes.append(_STAYS.format(gpu, record.trouble))

    return doubt


def _opened(stack: ExitStack, context: PlanContext) -> PatientDriver:
    if state.is_rootless():
        raise fault("GH1784", user=os.geteuid())
    return stack.enter_context(PatientDriver(context.node.nvml() or nvml_library.find("/")))


def _wanted(
    target: Target, context: PlanContext, grant: Grant, names: Iterable[str], wish: Wish | None
) -> list[MemoryLimit]:
    """Return the limits of what comes: as wished for, else as granted, but for what is limited."""
    nodes = [node["path"] for node in grant.edits.get("deviceNodes") or ()]
    if wish is None and not parse.limits_memory(target.spec, vocabulary.VOCABULARY):
        return []
    requested = [*grant.devices, *grant.in_full(names)]
    devices = container_limits.devices(
        target.spec, nodes, requested, lambda: context.node.covered(nodes)
    )
    if wish is None:
        noted = limit_records.records_of(target.entry).values()
        known = {one.limit.device for one in noted if one.is_limited or one.granted is not None}
        return [
            one
            for one in container_limits.container_limits(target.spec, devices)
            if one.device not in known
        ]
    sizes = node_json.memory()
    for device in devices:
        whole = sizes.get(device, wish.hard)
        if wish.hard > whole:
            raise fault("GH1782", limit=amount(wish.hard), gpu=device, whole=amount(whole))
    return [MemoryLimit(device, wish.hard, wish.soft or 0, is_asked=True) for device in devices]
