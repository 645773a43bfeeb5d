# SPDX-License-Identifier: Apache-2.0
"""A container that lost its GPUs: what is missing of what it was granted comes back, no more.

`systemctl daemon-reload` is how most lose them: systemd sets the device rules of its units anew,
and knows nothing of what others have allowed.
"""

from __future__ import annotations

import os
from typing import Any

from gpuhook.apply.live import hotplug_plan
from gpuhook.apply.spec import oci_spec
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import settings
from gpuhook.memory_limits import restore_limits
from gpuhook.target.report import Report
from gpuhook.target.running_container import Note
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.warm import live_jobs as nvidia_live

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.apply.live.hotplug_plan import Plan
    from gpuhook.cdi.hot.container_edits import ContainerEdits, Mount
    from gpuhook.entry.granting import Granting
    from gpuhook.target.running_container import Target

_EVERY = vocabulary.parse_capabilities("all")


def repair(
    target: Target, grants: Granting | None, library: Callable[[], str], *, is_dry: bool
) -> Report:
    """Make true again what the container was granted. All or nothing.

    `library` finds the NVML that is asked about memory limits, for a container that has some.
    """
    plan = missing(target, grants)
    guarantee = grants.settings.limits_guarantee if grants else settings.AUTO
    with restore_limits.lost(target, library, guarantee) as lost:
        # First the limits: a device that comes back is not without them for a moment.
        plan.operations = [*lost.plan.operations, *plan.operations]
        report = _done(target, plan, is_dry=is_dry)
        report.notes += lost.notes
        lost.try_again(target, report, is_dry=is_dry)
    return report


def _done(target: Target, plan: Plan, *, is_dry: bool) -> Report:
    report = Report(target, plan, is_dry=is_dry)
    if is_dry or not plan.operations:
        return report
    if target.entry.get("live"):
        plan.operations.append(Note(target, lambda entry: _enter(entry, target)))
    plan.execute(target.held)
    report.notes += target.held.rules.notes
    return report


def looks_into(target: Target, grants: Granting | None) -> bool:
    """Return whether missing() looks into the container's file systems; raises as that does."""
    if target.granted or target.entry or grants is None:
        return bool(target.granted)
    return grants.verdict(target.spec).chosen is not None


def missing(target: Target, grants: Granting | None) -> Plan:
    """Return the plan that brings back what the container was granted: what is wrong with it.

    Raises the faults of resolving a request, where that is what counts.
    """
    edits, todo = target.granted, target.all_jobs
    if not edits and grants is not None and not target.entry:
        edits = _given_by_others(target, grants)
    if not edits.get("deviceNodes"):  # a detach that was killed leaves mounts without a device
        return hotplug_plan.Plan()
    edits = _credible(edits, target, grants)
    wanted, _ = nvidia_live.wanted(target.held.root, edits, todo, is_running=True)
    if nvidia_live.has_profile(target.made):
        nvidia_live.renew_profile(wanted, target.held.root, target.withdrawn)
    wanted.owner, wanted.is_mounted = oci_spec.owner(target.spec), True
    return hotplug_plan.plan(target.held, wanted)


def _credible(edits: ContainerEdits, target: Target, grants: Granting | None) -> ContainerEdits:
    """Return `edits` without those mounts of config.json that are none of this node's driver.

    A volume may be named like a driver's file, and its source lie where a tenant can change it.
    """
    given = target.given.get("mounts") or []
    try:
        known = grants.named(["none"], _EVERY).edits.get("mounts") or [] if grants else []
    except GpuhookError:
        known = []  # no description of this node: device nodes can be brought back all the same
    sources = {mount["hostPath"] for mount in known}
    kept = edits.copy()
    kept["mounts"] = [
        mount
        for mount in edits.get("mounts") or ()
        if mount in given or mount["hostPath"] in sources
    ]
    return kept


def _given_by_others(target: Target, grants: Granting) -> ContainerEdits:
    """Return what NVIDIA's own hook gave the container, {} where it did not.

    It leaves no trace in config.json. What the container asks for counts, judged by this node's
    policy, and only of what it shows to have been given: driver files of the host are mounted in
    it, which no container can do by itself, and the node is there. The ledger knows nothing of
    it: what gpuhook has given, and taken away again, is not asked for once more.
    """
    source = grants.verdict(target.spec).chosen
    grant = grants.of(target.spec, source) if source is not None else None
    if grant is None or not any(_has_mount(target, m) for m in grant.edits.get("mounts") or ()):
        return {}
    root = target.held.root
    nodes = [n for n in grant.edits.get("deviceNodes") or () if root.found(n["path"]) is not None]
    return {"deviceNodes": nodes} if nodes else {}


def _has_mount(target: Target, mount: Mount) -> bool:
    root = target.held.root
    found = root.found(mount["containerPath"])
    try:
        host = os.stat(mount["hostPath"])
    except OSError:
        return False
    same = found is not None and (found.st_dev, found.st_ino) == (host.st_dev, host.st_ino)
    return same and root.is_mounted(mount["containerPath"])


def _enter(entry: dict[str, Any], target: Target) -> None:
    """Note what was made anew; what a killed attach had begun is whole now."""
    target.made.add(target.held.made)
    entry["live"] = target.record({})
