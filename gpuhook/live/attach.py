# SPDX-License-Identifier: Apache-2.0
"""Attach a GPU to a running container: nodes, driver files, loader set-up, device rules."""

from __future__ import annotations

from functools import partial
from typing import Any

from gpuhook.apply.live import hotplug_plan, interrupted_attach
from gpuhook.apply.spec import oci_spec
from gpuhook.entry import exclusive_devices, plan_context
from gpuhook.live.vendor_names import names_by_vendor
from gpuhook.memory_limits import attach_limits
from gpuhook.request import plan, policy, replicas
from gpuhook.request.resolve import Grant, resolve_names
from gpuhook.target.running_container import ContainerNote, Report
from gpuhook.vendors.warm import live_jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuhook.apply.live.hotplug_plan import DesiredState, HotplugPlan
    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.entry.plan_context import PlanContext, VendorContext
    from gpuhook.memory_limits.limit_changes import Wish
    from gpuhook.memory_limits.limit_plan import Limits
    from gpuhook.request.plan import Injection
    from gpuhook.target.running_container import Target

_RESTART = "restarting the container removes the GPU: it is not in its config.json"
_ENV = "the variables of the container's processes do not change"


def attach(
    target: Target,
    context: PlanContext,
    names: Sequence[str],
    capabilities: frozenset[str],
    *,
    wish: Wish | None = None,
    is_dry: bool,
) -> Report:
    """Give the container the devices `names`; devices that it already has are left as they are.

    Its memory of them is limited to `wish`, or as the container's creation granted it. All or
    nothing. Raises the faults of resolving, of requirements and of memory limits, and OSError or
    GH17xx of the container.
    """
    named = names_by_vendor(names, context)
    injections = [_injection(target, one, some, capabilities) for one, some in named]
    if context.settings.exclusive_devices:
        claimed = [(one, made.grant) for (one, _), made in zip(named, injections, strict=True)]
        found = target.found
        exclusive_devices.claim(claimed, found.bundle, found.id, is_dry=is_dry)
    grant = Grant.joined([injection.grant for injection in injections])
    todo, held = [job for one in injections for job in one.hook_jobs], target.held
    wanted, hotplug = _hotplug(target, grant, todo)
    intended = target.record(
        wanted.edits, todo, interrupted_attach.planned_items(held, wanted, hotplug)
    )
    whole = [device for one, some in named for device in _whole(one, some, capabilities)]
    requested = [name for one, some in named for name in plan_context.in_ledger(some, one)]
    with attach_limits.limits_to_set(target, context, grant, requested, wish) as limits:
        # First the limits: the device is never without them.
        hotplug.operations = [*limits.operations, *hotplug.operations]
        has_steps = bool(hotplug.operations)
        report = Report(target, hotplug, is_dry=is_dry)
        if not is_dry:
            own = plan_context.identities([one for one, _ in named], _nodes(grant.edits))
            intend = partial(_intend, grant=grant, whole=whole, record=intended, identities=own)
            enter = partial(_enter, target=target, edits=wanted.edits, todo=todo)
            _execute(target, hotplug, limits, intend, enter)
            report.notes += held.rules.notes
        report.notes += limits.notes
    if not is_dry:
        report.notes += _notes(target, grant, wanted.edits if has_steps else None)
    return report


def _injection(
    target: Target, context: VendorContext, names: Sequence[str], capabilities: frozenset[str]
) -> Injection:
    """Return the injection of one vendor's devices, if the container may have them."""
    policy.require_privilege(names, "attach", target.spec, context.node.vocabulary)
    found = plan_context.with_fresh_specs(
        lambda: plan.plan_names(names, capabilities, context.node), context
    )
    required = plan.requirements(target.spec, context.settings, context.node)
    nodes = _nodes(found.edits)
    plan_context.enforce_requirements(required, found.hook_jobs, nodes, context)
    return found


def _hotplug(target: Target, grant: Grant, todo: list[Jobs]) -> tuple[DesiredState, HotplugPlan]:
    """Return what the container is to have, and the plan that adds what it lacks."""
    held = target.held
    wanted, reasons = live_jobs.desired_state(held.root, grant.edits, todo, is_running=True)
    live_jobs.add_profile(wanted, held.root, todo, target.withdrawn)
    wanted.owner = oci_spec.owner(target.spec)
    wanted.denied = target.denied
    hotplug = hotplug_plan.plan(held, wanted)
    hotplug.skipped += reasons
    return wanted, hotplug


def _execute(
    target: Target,
    hotplug: HotplugPlan,
    limits: Limits,
    intend: Callable[[dict[str, Any]], None],
    enter: Callable[[dict[str, Any]], None],
) -> None:
    """Execute the plan between the two changes of the ledger's entry."""

    def note(change: Callable[[dict[str, Any]], None]) -> ContainerNote:
        def changed(entry: dict[str, Any]) -> None:
            change(entry)
            limits.enter(entry)

        return ContainerNote(target, changed)

    hotplug.operations = [note(intend), *hotplug.operations, note(enter)]
    hotplug.execute(target.held)


def _notes(target: Target, grant: Grant, added: ContainerEdits | None) -> Iterator[str]:
    """Yield notes on an attach; `added` has what the container got, None for nothing."""
    if grant.replicas:
        yield f"recorded in the ledger: {', '.join(grant.replicas)}"
    if added is not None:
        yield _ENV
        if not set(_nodes(target.by_config)).issuperset(_nodes(added)):
            yield _RESTART


def _nodes(edits: ContainerEdits) -> list[str]:
    return [node["path"] for node in edits.get("deviceNodes") or ()]


def _whole(context: VendorContext, names: Sequence[str], capabilities: frozenset[str]) -> list[str]:
    """Return the devices that are named directly: they remain when a replica of them is removed."""
    own = [name for name in names if not replicas.device_of(name)]
    return resolve_names(own, capabilities, context.node).devices if own else []


def _intend(
    entry: dict[str, Any],
    grant: Grant,
    whole: list[str],
    record: dict[str, Any],
    identities: dict[str, str],
) -> None:
    """Record the planned injection in the ledger: from now on the container may have it."""
    nodes = _nodes(grant.edits)
    for key, new in (
        ("devices", grant.devices),
        ("nodes", nodes),
        ("replicas", grant.replicas),
        ("whole", whole),
    ):
        entry[key] = list(dict.fromkeys([*entry.get(key, ()), *new]))
    entry["withdrawn"] = [path for path in entry.get("withdrawn") or () if path not in nodes]
    entry["live"] = record
    if identities:
        entry["identities"] = {**entry.get("identities", {}), **identities}


def _enter(entry: dict[str, Any], target: Target, edits: ContainerEdits, todo: list[Jobs]) -> None:
    """Record in the ledger that the injection is complete."""
    target.made.add(target.held.made)
    entry["live"] = target.record(edits, todo)
