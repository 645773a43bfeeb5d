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
from gpuhook.memory_limits.limit_plan import LimitPlan, Limits, clipped
from gpuhook.memory_limits.limit_state import unlimited
from gpuhook.memory_limits.nvml_worker import NvmlWorker
from gpuhook.memory_limits.warm import limit_records, memory_backend
from gpuhook.memory_limits.warm.limit_records import LimitRecord
from gpuhook.request import parse
from gpuhook.request.memory_request import MemoryLimit, amount
from gpuhook.vendors.nvidia.hot import node_json, vocabulary
from gpuhook.vendors.nvidia.warm import nvml_library

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
    is_asked = any(limit.is_asked for limit in wanted)
    policy = context.settings.limits_on_failure
    required = container_limits.is_required(policy, is_asked=is_asked)
    with ExitStack() as stack:
        try:
            found = _planned(target, context, stack, wanted, wish, required=required)
        except (GpuhookError, OSError) as error:
            if required:
                raise
            found = Limits()
            known = limit_state.limits_of(
                target.entry, target.spec, [limit.device for limit in wanted], None
            )
            granted = {before.gpu: before.granted for before in known}
            for limit in wanted:
                record = found.records[limit.device] = LimitRecord(limit, granted[limit.device])
                _fail(found, record, error)
        yield found


def _planned(
    target: Target,
    context: PlanContext,
    stack: ExitStack,
    wanted: list[MemoryLimit],
    wish: Wish | None,
    *,
    required: bool,
) -> Limits:
    driver = _opened(stack, context)
    plan = LimitPlan(target, driver)
    limits = {limit.device: clipped(driver, limit) for limit in wanted}
    for before in plan.before(limits):
        limit = limits[before.gpu]
        # A requested guarantee is set, whatever limits.guarantee says.
        guarantee = context.settings.limits_guarantee if wish is None else ALWAYS
        kept, reason = memory_backend.supported_limit(limit, guarantee, plan.backend)
        record = LimitRecord(kept, before.granted if wish else limit, reason)
        on_failure = None if required else partial(_fail, plan, record)
        plan.change(before, kept, record, on_failure)
    return plan


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
    gone = {gpu: one for gpu, one in limit_records.records_of(target.entry).items() if is_gone(gpu)}
    held = [gpu for gpu, one in gone.items() if one.by == limit_records.DRIVER and one.is_limited]
    found = Limits()
    with ExitStack() as stack:
        try:
            if held:
                found = plan = LimitPlan(target, _opened(stack, context))
                for before in plan.before(held):
                    doubt = partial(_doubt, plan, before.gpu, plan.cgroups)
                    plan.change(before, None, None, doubt)
        except (GpuhookError, OSError) as error:
            found = Limits()
            for gpu in sorted(held):
                _doubt(found, gpu, [], error)
        found.records = {**dict.fromkeys(gone), **found.records}
        yield found


def _doubt(found: Limits, gpu: str, cgroups: list[str], error: GpuhookError | OSError) -> None:
    """Record that the driver's limit is unknown: a repair tries to clear it."""
    record = found.records[gpu] = LimitRecord(unlimited(gpu), None)
    record.fail(error, cgroups)
    found.notes.append(_LEFT.format(gpu, record.trouble))


def _opened(stack: ExitStack, context: PlanContext) -> NvmlWorker:
    if state.is_rootless():
        raise fault("GH1784", user=os.geteuid())
    return stack.enter_context(NvmlWorker(context.node.nvml() or nvml_library.find("/")))


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
