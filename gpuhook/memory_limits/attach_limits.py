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
from gpuhook.memory_limits import limit_state
from gpuhook.memory_limits.hot import container_limits
from gpuhook.memory_limits.hot.container_limits import DeviceRequest
from gpuhook.memory_limits.limit_plan import LimitPlan, Limits, clipped
from gpuhook.memory_limits.limit_state import unlimited
from gpuhook.memory_limits.limit_worker import LimitDrivers
from gpuhook.memory_limits.warm import limit_records, memory_backend
from gpuhook.memory_limits.warm.limit_records import LimitRecord
from gpuhook.request import parse
from gpuhook.request.memory_request import MemoryLimit, amount
from gpuhook.vendors.hot.memory_vendors import by_vendor, vendor_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpuhook.entry.plan_context import PlanContext
    from gpuhook.memory_limits.limit_changes import Wish
    from gpuhook.request.resolve import Grant
    from gpuhook.target.running_container import Target

_UNLIMITED = "{} has no memory limit, as limits.onFailure allows: {}"
_LEFT = "the driver may still enforce a memory limit of {}: {}"


@contextmanager
def limits_to_set(
    target: Target, context: PlanContext, grant: Grant, names: Iterable[str], wish: Wish | None
) -> Iterator[Limits]:
    """Yield the limits of the GPUs of `grant`, requested by `names`, that are attached.

    `wish` replaces the container's grant. A GPU that already has a limit keeps it. Raises GH1022 to
    GH1024, GH1782, and the errors that limits.onFailure makes a reason to refuse.
    """
    wanted = _desired_limits(target, context, grant, names, wish)
    if not wanted:
        yield Limits()
        return
    found = Limits()
    with ExitStack() as stack:
        for own in by_vendor(wanted).values():
            try:
                _add_plan(found, target, context, _opened(stack, context), own, wish=wish)
            except (GpuhookError, OSError) as error:
                if _is_required(context, own):
                    raise
                _fail_all(found, target, own, error)
        yield found


def _add_plan(
    found: Limits,
    target: Target,
    context: PlanContext,
    drivers: LimitDrivers,
    wanted: list[MemoryLimit],
    *,
    wish: Wish | None,
) -> None:
    """Add the changes that set `wanted` to `found`, with notes of refusals if it allows them."""
    plan = LimitPlan(target, drivers)
    limits = {limit.device: clipped(drivers, limit) for limit in wanted}
    required = _is_required(context, wanted)
    for before in plan.before(limits):
        limit = limits[before.gpu]
        # A requested guarantee is set, whatever limits.guarantee says.
        guarantee = context.settings.limits_guarantee if wish is None else ALWAYS
        kept, reason = memory_backend.supported_limit(limit, guarantee, plan.backend(before.gpu))
        record = LimitRecord(kept, before.granted if wish else limit, reason)
        on_failure = None if required else partial(_fail, found, record)
        plan.change(before, kept, record, on_failure)
    found.add(plan)


def _is_required(context: PlanContext, wanted: list[MemoryLimit]) -> bool:
    is_asked = any(limit.is_asked for limit in wanted)
    return container_limits.is_required(context.settings.limits_on_failure, is_asked=is_asked)


def _fail_all(
    found: Limits, target: Target, wanted: list[MemoryLimit], error: GpuhookError | OSError
) -> None:
    gpus = [limit.device for limit in wanted]
    known = limit_state.limits_of(target.entry, target.spec, gpus, lambda _: None)
    granted = {before.gpu: before.granted for before in known}
    for limit in wanted:
        record = found.records[limit.device] = LimitRecord(limit, granted[limit.device])
        _fail(found, record, error)


def _fail(found: Limits, record: LimitRecord, error: GpuhookError | OSError) -> None:
    record.fail(error, [])
    found.notes.append(_UNLIMITED.format(record.limit.device, record.trouble))


@contextmanager
def limits_to_clear(
    target: Target, context: PlanContext, is_gone: Callable[[str], bool]
) -> Iterator[Limits]:
    """Yield the changes that clear the limits of detached GPUs; `is_gone` takes a GPU's id.

    A GPU is detached even if that fails: the ledger then records that the limit is unknown.
    """
    gone = {gpu: one for gpu, one in limit_records.records_of(target.entry).items() if is_gone(gpu)}
    held = [one.limit for one in gone.values() if one.is_enforced and one.is_limited]
    found = Limits()
    with ExitStack() as stack:
        for own in by_vendor(held).values():
            gpus = [limit.device for limit in own]
            try:
                plan = LimitPlan(target, _opened(stack, context))
                for before in plan.before(gpus):
                    doubt = partial(_doubt, found, before.gpu, plan.cgroups(before.gpu))
                    plan.change(before, None, None, doubt)
                found.add(plan)
            except (GpuhookError, OSError) as error:
                for gpu in sorted(gpus):
                    _doubt(found, gpu, [], error)
        found.records = {**dict.fromkeys(gone), **found.records}
        yield found


def _doubt(found: Limits, gpu: str, cgroups: list[str], error: GpuhookError | OSError) -> None:
    """Record that the driver's limit is unknown: a repair tries to clear it."""
    record = found.records[gpu] = LimitRecord(unlimited(gpu), None)
    record.fail(error, cgroups)
    found.notes.append(_LEFT.format(gpu, record.trouble))


def _opened(stack: ExitStack, context: PlanContext) -> LimitDrivers:
    if state.is_rootless():
        raise fault("GH1784", user=os.geteuid())
    return stack.enter_context(LimitDrivers(context.node.driver_library))


def _desired_limits(
    target: Target, context: PlanContext, grant: Grant, names: Iterable[str], wish: Wish | None
) -> list[MemoryLimit]:
    """Return the limits of attached GPUs: the wish, else the grant; none for a limited GPU."""
    nodes = [node["path"] for node in grant.edits.get("deviceNodes") or ()]
    if wish is None and not parse.limits_memory(target.spec):
        return []
    requested = [*grant.devices, *grant.in_full(names)]
    request = DeviceRequest(target.spec, nodes, requested, lambda: context.node.covered(nodes))
    devices = container_limits.devices(request)
    if wish is None:
        noted = limit_records.records_of(target.entry).values()
        known = {one.limit.device for one in noted if one.is_limited or one.granted is not None}
        return [
            one
            for one in container_limits.container_limits(target.spec, devices)
            if one.device not in known
        ]
    for device in devices:
        whole = vendor_of(device).totals([device]).get(device, wish.hard)
        if wish.hard > whole:
            raise fault("GH1782", limit=amount(wish.hard), gpu=device, whole=amount(whole))
    return [MemoryLimit(device, wish.hard, wish.soft or 0, is_asked=True) for device in devices]
