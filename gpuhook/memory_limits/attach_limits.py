# SPDX-License-Identifier: Apache-2.0
"""Memory limits of GPUs that are attached to a running container or detached from it.

Limits are set before an attach and cleared after a detach. The grant is the same as at the
container's creation: a device plugin's mounts, its own variables. If the driver refuses a limit,
limits.onFailure decides: the GPU is not attached, or a note reports the missing limit.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from functools import partial

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

    from gpuhook.apply.live.hotplug_steps import Operation
    from gpuhook.entry.plan_context import PlanContext
    from gpuhook.memory_limits.limit_changes import Wish
    from gpuhook.memory_limits.limit_state import LimitState
    from gpuhook.request.resolve import Grant
    from gpuhook.target.running_container import Target

_UNLIMITED = "{} has no memory limit, as limits.onFailure allows: {}"
_LEFT = "the driver may still enforce a memory limit of {}: {}"


class Limits:
    """Changes of limits: `operations` for a plan, and the ledger's `records` of them."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.records: dict[str, LimitRecord | None] = {}
        self.notes: list[str] = []

    def enter(self, entry: dict[str, Any]) -> None:
        """Record in the ledger the limits that apply, or will apply."""
        if self.records:
            limit_records.enter(entry, self.records)


@contextmanager
def limits_to_set(
    target: Target, context: PlanContext, grant: Grant, names: Iterable[str], wish: Wish | None
) -> Iterator[Limits]:
    """Yield the limits of the GPUs of `grant`, requested by `names`, that are attached.

    `wish` replaces the container's grant. A GPU that already has a limit keeps it. Raises GH1022 to
    GH1024, GH1782, and the errors that limits.onFailure makes a reason to refuse.
    """
    wanted = _desired_limits(target, context, grant, names, wish)
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
                # A requested guarantee is set, whatever limits.guarantee says.
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
    """Return each limit with the current state of its GPU."""
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
    on_failure = None
    if not required:
        found.records[limit.device] = record
        on_failure = partial(_fail, found, record)
    found.operations.append(HoldMemory(driver, before, limit, record.cgroups, on_failure))


def _fail(found: Limits, record: LimitRecord, error: GpuhookError | OSError) -> None:
    record.fail(error, [])
    found.notes.append(_UNLIMITED.format(record.limit.device, record.trouble))


@contextmanager
def limits_to_clear(
    target: Target, context: PlanContext, is_gone: Callable[[str], bool]
) -> Iterator[Limits]:
    """Yield the changes that clear the limits of detached GPUs; `is_gone` takes a GPU's UUID.

    A GPU is detached even if that fails: the ledger then records that the limit is unknown.
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
                        doubt = partial(_doubt, found, before.gpu, cgroups)
                        found.operations.append(HoldMemory(driver, before, None, cgroups, doubt))
            except (GpuhookError, OSError) as error:
                for gpu in sorted(held):
                    _doubt(found, gpu, [], error)
        yield found


def _doubt(found: Limits, gpu: str, cgroups: list[str], error: GpuhookError | OSError) -> None:
    """Record that the driver's limit is unknown: a repair tries to clear it."""
    record = found.records[gpu] = LimitRecord(unlimited(gpu), None)
    record.fail(error, cgroups)
    found.notes.append(_LEFT.format(gpu, record.trouble))


def _opened(stack: ExitStack, context: PlanContext) -> PatientDriver:
    if state.is_rootless():
        raise fault("GH1784", user=os.geteuid())
    return stack.enter_context(PatientDriver(context.node.nvml() or nvml_library.find("/")))


def _desired_limits(
    target: Target, context: PlanContext, grant: Grant, names: Iterable[str], wish: Wish | None
) -> list[MemoryLimit]:
    """Return the limits of attached GPUs: the wish, else the grant; none for a limited GPU."""
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
