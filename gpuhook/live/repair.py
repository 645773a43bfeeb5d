# SPDX-License-Identifier: Apache-2.0
"""Repair a container that lost its GPUs: missing items of its grant return, no others.

The usual cause is `systemctl daemon-reload`: systemd sets the device rules of its units again, and
does not know rules that other programs have added.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from gpuhook.apply.live import hotplug_plan
from gpuhook.apply.spec import oci_spec
from gpuhook.entry import plan_context
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import settings
from gpuhook.live.common_edits import common_edits
from gpuhook.memory_limits import restore_limits
from gpuhook.request import plan
from gpuhook.target.node_changes import node_changes
from gpuhook.target.running_container import ContainerNote, Report
from gpuhook.vendors.warm import live_jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.apply.live.hotplug_plan import HotplugPlan
    from gpuhook.cdi.hot.container_edits import ContainerEdits, Mount
    from gpuhook.entry.plan_context import PlanContext
    from gpuhook.request.resolve import Grant
    from gpuhook.target.running_container import Target

_UNRECORDED = (
    "the ledger has no record of the devices at the start of the container: after a reload of the "
    "driver or a change of a mode, these may be others: {}"
)


def repair(
    target: Target, context: PlanContext | None, library: Callable[[], str], *, is_dry: bool
) -> Report:
    """Restore what the container was granted. All or nothing.

    `library` finds the driver's library for memory limits, for a container that has some. Raises
    GH1763 if its device nodes are of other devices now.
    """
    changed = node_changes(target.found.id, target.entry)
    if changed is not None:
        raise changed
    lacking = missing(target, context)
    guarantee = context.settings.limits_guarantee if context else settings.AUTO
    with restore_limits.lost_limits(target, library, guarantee) as lost:
        # First the limits: a device that returns is never without them.
        lacking.operations = [*lost.plan.operations, *lacking.operations]
        report = _done(target, lacking, is_dry=is_dry)
        report.notes += lost.notes
        if report.steps:
            report.notes += _unrecorded(target, context)
        lost.try_again(target, report, is_dry=is_dry)
    return report


def _unrecorded(target: Target, context: PlanContext | None) -> list[str]:
    """Return a note on restored nodes that may be of other devices than at the start.

    The ledger has no container to which its engine gave devices by CDI.
    """
    paths = [node["path"] for node in target.granted.get("deviceNodes") or ()]
    now = plan_context.identities(context.every(), paths) if context else {}
    known = target.entry.get("identities") or {}
    found = [f"{path} ({device})" for path, device in now.items() if path not in known]
    return [_UNRECORDED.format(", ".join(found))] if found else []


def _done(target: Target, lacking: HotplugPlan, *, is_dry: bool) -> Report:
    report = Report(target, lacking, is_dry=is_dry)
    if is_dry or not lacking.operations:
        return report
    if target.entry.get("live"):
        lacking.operations.append(ContainerNote(target, lambda entry: _enter(entry, target)))
    lacking.execute(target.held)
    report.notes += target.held.rules.notes
    return report


def looks_into(target: Target, context: PlanContext | None) -> bool:
    """Return whether missing() reads the container's file systems; raises as that does."""
    if target.granted or target.entry or context is None:
        return bool(target.granted)
    return plan.verdict(target.spec, context.settings, context.node).chosen is not None


def missing(target: Target, context: PlanContext | None) -> HotplugPlan:
    """Return the plan that restores the container's grant: the list of what is wrong with it.

    Raises the faults of resolving a request, if the grant is a request.
    """
    edits, todo = target.granted, target.all_jobs
    if not edits and context is not None and not target.entry:
        edits = _given_by_others(target, context)
    if not edits.get("deviceNodes"):  # a killed detach leaves mounts without a device
        return hotplug_plan.HotplugPlan()
    edits = _credible(edits, target, context)
    wanted, _ = live_jobs.desired_state(target.held.root, edits, todo, is_running=True)
    if live_jobs.has_profile(target.made):
        live_jobs.renew_profile(wanted, target.held.root, target.withdrawn)
    wanted.owner, wanted.is_mounted = oci_spec.owner(target.spec), True
    return hotplug_plan.plan(target.held, wanted)


def _credible(edits: ContainerEdits, target: Target, context: PlanContext | None) -> ContainerEdits:
    """Return `edits` without those mounts of config.json that do not belong to this node's driver.

    A volume may have the name of a driver's file, and a source that a tenant can change.
    """
    given = target.given.get("mounts") or []
    driver: ContainerEdits = {}
    # Without a description of this node, its device nodes can be restored all the same.
    with suppress(GpuhookError):
        driver = common_edits(context.node) if context else {}
    sources = {mount["hostPath"] for mount in driver.get("mounts") or ()}
    kept = edits.copy()
    kept["mounts"] = [
        mount
        for mount in edits.get("mounts") or ()
        if mount in given or mount["hostPath"] in sources
    ]
    return kept


def _given_by_others(target: Target, context: PlanContext) -> ContainerEdits:
    """Return the edits of the vendor's own hook, {} if it did not inject any.

    It leaves no trace in config.json. The container's request decides, within this node's policy,
    and only as far as the container shows an injection: driver files of the host are mounted in it,
    which no container can do by itself, and the node exists. The container has no entry in the
    ledger: an injection of gpuhook that was removed is not requested again.
    """
    grant = _requested(target.spec, context)
    if grant is None or not any(_has_mount(target, m) for m in grant.edits.get("mounts") or ()):
        return {}
    root = target.held.root
    nodes = [n for n in grant.edits.get("deviceNodes") or () if root.status(n["path"]) is not None]
    return {"deviceNodes": nodes} if nodes else {}


def _requested(spec: dict[str, Any], context: PlanContext) -> Grant | None:
    """Return the grant of a container's request, None without one."""
    chosen, node = context.settings, context.node
    source = plan.verdict(spec, chosen, node).chosen
    if source is None:
        return None
    warnings: list[GpuhookError] = []
    try:
        found = plan.resolve_source(spec, source, chosen, node, warnings)
    finally:
        plan_context.log_warnings(warnings, context.log)
    return None if found is None else found[0]


def _has_mount(target: Target, mount: Mount) -> bool:
    root = target.held.root
    found = root.status(mount["containerPath"])
    try:
        host = os.stat(mount["hostPath"])
    except OSError:
        return False
    same = found is not None and (found.st_dev, found.st_ino) == (host.st_dev, host.st_ino)
    return same and root.is_mounted(mount["containerPath"])


def _enter(entry: dict[str, Any], target: Target) -> None:
    """Record the restored items; the injection of a killed attach is complete now."""
    target.made.add(target.held.made)
    entry["live"] = target.record({})
