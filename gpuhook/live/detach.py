# SPDX-License-Identifier: Apache-2.0
"""Detach a GPU from a running container.

Control nodes and driver files are removed with the last GPU, if an attach added them.
"""

from __future__ import annotations

import os
from typing import Any

from gpuhook.apply.live import hotplug_plan, unplug_plan
from gpuhook.apply.live.bind_mounts import Bind
from gpuhook.apply.live.hotplug_plan import HotplugPlan
from gpuhook.apply.live.live_files import current
from gpuhook.apply.live.live_injection import InjectedItems, rule_record
from gpuhook.apply.live.unplug_steps import Forbid, PutBack
from gpuhook.containers.warm import open_devices
from gpuhook.errors import GpuhookError, fault
from gpuhook.live.detach_selection import Taken
from gpuhook.live.vendor_names import names_by_vendor
from gpuhook.memory_limits import attach_limits
from gpuhook.target.running_container import ContainerNote, Report
from gpuhook.vendors.hot import rootfs_plan
from gpuhook.vendors.warm import config_devices, live_jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuhook.apply.live.hotplug_steps import Operation
    from gpuhook.cdi.hot.container_edits import DeviceNode
    from gpuhook.entry.plan_context import PlanContext
    from gpuhook.kernel.bpf.device_filter import Rule
    from gpuhook.memory_limits.limit_plan import Limits
    from gpuhook.target.running_container import Target

_RESTART = "config.json grants it: restarting the container adds it again"
_NOT_DENIED = "device rules: {}: a process that can create a node there can open the device again"
_OPEN = "{} keeps its open file descriptors: only new opens are refused"


def detach(
    target: Target, context: PlanContext, names: Sequence[str], *, force: bool, is_dry: bool
) -> Report:
    """Remove the devices `names`; devices that the container does not have are ignored.

    All or nothing, except for items that the container itself keeps: these are reported as left,
    and cannot be opened any more. Raises GH1753 if a process of the container has one open, unless
    `force`, and before that the errors of opening the container's root file system.
    """
    target.held.require_root()
    taken = Removal(target, context, names)
    detaching = _Detach(target, taken)
    with attach_limits.limits_to_clear(target, context, taken.has_taken) as limits:
        return _detached(detaching, limits, force=force, is_dry=is_dry)


class Removal:
    """What is removed of each vendor's devices; `is_last` means that no GPU of any remains.

    Only then do the files of the first attach go, too.
    """

    def __init__(self, target: Target, context: PlanContext, names: Sequence[str]) -> None:
        """Raise the faults of Taken."""
        held = [node["path"] for node in target.granted.get("deviceNodes") or ()]
        holders = [one for one in context.every() if one.node.own_nodes(held)]
        named = names_by_vendor(names, context, holders)
        self._parts = [(one.node, Taken(target, one.node, some)) for one, some in named]
        parts = [part for _, part in self._parts]
        self.nodes = [node for part in parts for node in part.nodes]
        self.of_config = [path for part in parts for path in part.of_config]
        self.replicas = [replica for part in parts for replica in part.replicas]
        touched = [one for one, _ in named]
        self.is_last = all(part.is_last for part in parts) and all(
            one in touched for one in holders
        )

    def is_gone(self, name: str) -> bool:
        """Return whether a device, by its qualified name, or a replica is removed."""
        return self.is_last or any(
            part.is_gone(name) for node, part in self._parts if "=" not in name or node.serves(name)
        )

    def has_taken(self, device: str) -> bool:
        """Return whether the GPU, partition or instance with this id is removed."""
        return self.is_gone(device) or any(part.has_taken(device) for _, part in self._parts)


def _detached(detaching: _Detach, limits: Limits, *, force: bool, is_dry: bool) -> Report:
    target, taken = detaching.target, detaching.taken
    holders = _holders(target, taken.nodes)
    if holders and not force:
        raise fault("GH1753", id=target.found.id, holders="; ".join(holders))
    plan = detaching.plan()
    # Last the limits: the device is never without them.
    plan.operations += limits.operations
    report = Report(target, plan, is_dry=is_dry)
    if taken.nodes and target.held.rules.version == "none":
        report.left.append(_NOT_DENIED.format(target.held.rules.why_none))
    report.notes += [_OPEN.format(holder) for holder in holders]
    if taken.of_config:
        report.notes.append(_RESTART)
    if taken.replicas:
        report.notes.append(f"removed from the ledger: {', '.join(taken.replicas)}")
    if is_dry or not (taken.nodes or taken.replicas or taken.is_last):
        return report
    # First the intent: after a kill in the middle, a repair restores nothing that was to go.
    plan.operations.insert(0, ContainerNote(target, detaching.intend))

    def enter(entry: dict[str, Any]) -> None:
        detaching.enter(entry)
        limits.enter(entry)

    plan.operations.append(ContainerNote(target, enter))
    plan.execute(target.held)
    report.notes += [*target.held.rules.notes, *limits.notes]
    report.left += target.held.left
    return report


class _Detach:
    """The plan that removes the nodes, and the changes of the ledger."""

    def __init__(self, target: Target, taken: Removal) -> None:
        self.target = target
        self.taken = taken
        self._coming = InjectedItems()

    def plan(self) -> HotplugPlan:
        """Return the plan: first the rules, so that no process opens the nodes meanwhile."""
        plan, target = HotplugPlan(), self.target
        binds = _binds(target)
        taken = [
            (node["path"], os.makedev(*rule.device[1:]))
            for node, rule in _with_rules(self.taken.nodes)
        ]
        forbidden = self._rules()
        if forbidden is not None:
            plan.operations.append(forbidden)
        steps = [unplug_plan.plan_nodes(target.held, target.made, taken, binds)]
        if self.taken.is_last:
            others = {path: b for path, b in binds.items() if path not in dict(taken)}
            steps.append(self._rest(others))
        for step in steps:
            plan.operations += step.operations
            plan.skipped += step.skipped
        if not self.taken.is_last:
            plan.operations += self._profile()
        plan.skipped += self._unknown()
        return plan

    def _profile(self) -> list[Operation]:
        """Return the step that removes the nodes from the application profile, if there is one."""
        target = self.target
        root = target.held.root
        if not live_jobs.has_profile(target.made) and not live_jobs.shows_profile(root):
            return []
        gone = [*target.withdrawn, *(node["path"] for node in self.taken.nodes)]
        left = config_devices.without(target.granted, gone).get("deviceNodes") or []
        with target.held.as_root():
            change = live_jobs.profile_for(root, [node["path"] for node in left], gone)
            now = current(root, change.path)
        if now.summary() == change.summary():
            return []
        self._coming.changes.append(change.noted(now))
        return [PutBack([change], [change.path])]

    def _unknown(self) -> list[str]:
        """Return the driver's mounts without a record, if the last GPU is removed."""
        if not self.taken.is_last or self.target.made.mounts:
            return []
        known = {m["containerPath"] for m in self.target.by_config.get("mounts") or ()}
        mounts = [mount.target for mount in self.target.held.root.mounts()]
        found = [p for p in mounts if config_devices.is_driver_file(p) and p not in known]
        if not found:
            return []
        return [f"{len(found)} mounts of driver files remain: their origin is not recorded"]

    def _rest(self, binds: dict[str, Bind]) -> HotplugPlan:
        """Return the plan that removes the driver's files, as far as they can be read."""
        target = self.target
        try:
            made, _ = rootfs_plan.rootfs_plan(target.held.root, target.jobs)
            return unplug_plan.plan_other_items(target.held, target.made, binds, [made])
        except (OSError, GpuhookError) as error:
            plan = HotplugPlan()
            plan.skipped.append(f"the driver's files remain: {error}")
            return plan

    def _rules(self) -> Forbid | None:
        """Return the step that removes the rules, None without any."""
        rules = self.target.held.rules
        if rules.version == "none":
            return None
        added: list[Rule] = []
        others: list[Rule] = []
        nodes: dict[Rule, str] = {}
        hosts: dict[Rule, str] = {}
        for node, rule in _with_rules(self.taken.nodes):
            nodes[rule] = node["path"]
            hosts[rule] = node.get("hostPath") or node["path"]
            if rule_record(rule) in self.target.made.rules:
                added.append(rule)
            elif rules.verdict(*rule.device, "r")[0]:
                others.append(rule)
        return Forbid(added, others, nodes, hosts) if added or others else None

    def intend(self, entry: dict[str, Any]) -> None:
        """Record the planned removal in the ledger."""
        paths = [node["path"] for node in self.taken.nodes]
        entry["withdrawn"] = list(dict.fromkeys([*self.target.withdrawn, *paths]))
        if self._coming.changes:
            entry["live"] = self.target.record({}, coming=self._coming)

    def enter(self, entry: dict[str, Any]) -> None:
        """Record the removal in the ledger, so that no repair restores it."""
        target = self.target
        paths = [node["path"] for node in self.taken.nodes]
        for key in ("devices", "replicas", "whole"):
            entry[key] = [name for name in entry.get(key, ()) if not self.taken.is_gone(name)]
        self.intend(entry)
        gone = entry["withdrawn"]  # including those of a detach that was killed
        entry["nodes"] = [path for path in entry.get("nodes", ()) if path not in gone]
        if self.taken.is_last:
            entry.pop("live", None)
        elif "live" in entry:
            target.made.add(self._coming)
            for node in self.taken.nodes:
                rule = hotplug_plan.rule_of(node)
                target.made.forget(node["path"], rule_record(rule) if rule is not None else [])
            target.given = config_devices.without(target.given, paths)
            entry["live"] = target.record({})


def _with_rules(nodes: Iterable[DeviceNode]) -> list[tuple[DeviceNode, Rule]]:
    """Return the nodes that a device rule can mean, each with its rule."""
    rules = ((node, hotplug_plan.rule_of(node)) for node in nodes)
    return [(node, rule) for node, rule in rules if rule is not None]


def _holders(target: Target, nodes: list[DeviceNode]) -> list[str]:
    """Return the processes that have one of the nodes open."""
    numbers = {rule.device[1:] for _, rule in _with_rules(nodes)}
    found = open_devices.processes_with(target.held.process, numbers)
    return [f"process {pid} ({command}, {how})" for pid, command, how in found]


def _binds(target: Target) -> dict[str, Bind]:
    """Return the mounts of the injection by target, as they would be made again."""
    binds = {}
    for mount in target.given.get("mounts") or ():
        source = mount["hostPath"]
        is_directory = os.path.isdir(source)
        attributes = hotplug_plan.attributes_of(mount)
        path = mount["containerPath"]
        binds[path] = Bind(source, path, attributes, is_directory=is_directory)
        binds[path].is_mapped = hotplug_plan.maps_owners(target.held, mount)
    for node in target.given.get("deviceNodes") or ():
        source = node.get("hostPath") or node["path"]
        binds[node["path"]] = Bind(
            source, node["path"], hotplug_plan.NODE_ATTRIBUTES, is_directory=False
        )
    return binds
