# SPDX-License-Identifier: Apache-2.0
"""A plan of the steps by which an existing container gets ContainerEdits, and its execution.

The prestart hook, `attach` and `repair` execute it; `inspect` prints it, since a missing item is a
fault. The plan is made first and describes itself; then its operations are done in order, and
undone in reverse if one fails.
"""

from __future__ import annotations

import os
import stat

from gpuhook.apply.live.bind_mounts import ATTRIBUTES, Bind, BindMounts
from gpuhook.apply.live.cgroup.device_cgroup import DeviceRules
from gpuhook.apply.live.hotplug_steps import AccessStep, Live, NodeStep
from gpuhook.apply.live.live_files import DryRunRoot, LiveFiles
from gpuhook.apply.live.live_injection import InjectedItems
from gpuhook.apply.rootfs.rootfs_files import provide
from gpuhook.apply.rootfs.safe_walk import CrossingError
from gpuhook.apply.spec import oci_spec
from gpuhook.containers.warm import host_mounts
from gpuhook.errors import GpuhookError, fault
from gpuhook.kernel import mounts
from gpuhook.kernel.bpf.device_filter import Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.apply.live.hotplug_steps import Operation
    from gpuhook.apply.rootfs.provision import Provision
    from gpuhook.cdi.hot.container_edits import ContainerEdits, DeviceNode, Mount
    from gpuhook.containers.warm.process_handle import Process

NODE_ATTRIBUTES = mounts.MOUNT_ATTR_NOSUID | mounts.MOUNT_ATTR_NOEXEC
_MODE = 0o666


class DesiredState:
    """What a container is to have: edits, and the provisions of their hook's jobs.

    With `is_mounted`, any mount at a target is accepted: an upgraded driver has other files.
    `denied` are nodes that `detach` removed: a v1 cgroup that allows everything does not show a
    denial.
    """

    __slots__ = ("denied", "edits", "is_mounted", "owner", "provisions")

    def __init__(self, edits: ContainerEdits, provisions: list[Provision] | None = None) -> None:
        self.denied: list[str] = []
        self.edits = edits
        self.is_mounted = False
        self.owner = (0, 0)
        self.provisions = provisions or []


class HotplugPlan:
    """The operations that reach the desired state, and what is not possible here, in words."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.skipped: list[str] = []

    def describe(self) -> list[str]:
        """Return a line for everything that the plan changes."""
        return [line for operation in self.operations for line in operation.describe()]

    def execute(self, live: Live) -> None:
        """Do all or nothing: completed operations are undone if one fails."""
        done: list[Operation] = []
        if live.signals is not None:
            live.signals.hold()
        try:
            for operation in self.operations:
                if live.signals is not None:
                    live.signals.check()
                live.process.require_alive()
                operation.execute(live)
                done.append(operation)
            live.process.require_alive()
        except BaseException as error:
            _unwind(done, live, error)
            raise


def _unwind(done: list[Operation], live: Live, cause: BaseException) -> None:
    left = []
    for operation in reversed(done):
        try:
            operation.undo(live)
        except (OSError, GpuhookError) as error:
            left.append(f"{'; '.join(operation.describe()[:3])}: {error}")
    if left:
        raise fault("GH1751", cause=cause, left=" | ".join(left)) from cause


def open_live(
    process: Process, place: str, spec: dict[str, Any], cgroup: str | None = None
) -> Live:
    """Return the container of `process`, whose root is at `place`; `spec` is its config.json.

    `spec` is {} if it is gone. `cgroup` is the one that its runtime recorded, None while the
    runtime is creating the container.
    """
    fallback = oci_spec.device_rules(spec) if spec else None
    rules = DeviceRules.parse(process.read("cgroup"), fallback, cgroup)
    live = Live(process, place, rules, InjectedItems())
    live.volumes = host_mounts.volumes(spec) if spec else None
    return live


def plan(live: Live, wanted: DesiredState) -> HotplugPlan:
    """Return the operations that `live` needs to have what is `wanted`. Changes nothing.

    Raises GH1302 for a device node that the host lacks, GH1752 for a file.
    """
    made = HotplugPlan()
    _plan_nodes(live, wanted, made)
    with live.as_root():
        _plan_files(live, wanted, made)
    _plan_rules(live, wanted, made)
    edits = wanted.edits
    # Made nodes are the container's user's own; bound ones are the host's.
    groups = None if live.process.in_initial_user_namespace() else edits.get("additionalGids")
    names = {"variables": edits.get("env"), "groups": groups}
    for what, items in names.items():
        if items:
            listed = ", ".join(map(str, items))
            made.skipped.append(f"the {what} {listed} (a running process keeps its own)")
    for hook in edits.get("hooks") or ():
        made.skipped.append(f"the {hook['hookName']} hook {hook['path']}")
    return made


def _plan_nodes(live: Live, wanted: DesiredState, made: HotplugPlan) -> None:
    """Plan device nodes and mounts.

    In a user namespace, no process can make a node that can be opened: there the host's node is
    bound.
    """
    binds = []
    makes_nodes = live.process.in_initial_user_namespace()
    for node in wanted.edits.get("deviceNodes") or ():
        device = oci_spec.oci_device(node)
        if device["type"] not in "bc" or _is_there(live, device):
            continue
        if makes_nodes:
            made.operations.append(_node(device, wanted.owner))
        else:
            source = node.get("hostPath") or node["path"]
            binds.append(Bind(source, node["path"], NODE_ATTRIBUTES, is_directory=False))
    for mount in wanted.edits.get("mounts") or ():
        bind = _bind(live, mount, made, is_mounted=wanted.is_mounted)
        if bind is not None:
            binds.append(bind)
    if binds:
        made.operations.append(BindMounts(binds))


def _is_there(live: Live, device: dict[str, Any]) -> bool:
    found = live.root.status(device["path"])
    return (
        found is not None
        and stat.S_IFMT(found.st_mode) == (stat.S_IFCHR if device["type"] == "c" else stat.S_IFBLK)
        and found.st_rdev == os.makedev(device["major"], device["minor"])
    )


def _node(device: dict[str, Any], owner: tuple[int, int]) -> NodeStep:
    numbers = device["major"], device["minor"]
    node = NodeStep(device["path"], device["type"], numbers, device.get("fileMode", _MODE))
    node.owner = device.get("uid", owner[0]), device.get("gid", owner[1])
    return node


def _bind(live: Live, mount: Mount, made: HotplugPlan, *, is_mounted: bool) -> Bind | None:
    """Return the bind mount to make, None if it exists or is not possible."""
    source, target = mount["hostPath"], mount["containerPath"]
    if mount.get("type", "bind") not in ("", "bind", "none"):
        made.skipped.append(
            f"the {mount['type']} mount at {target}: only files can be mounted here"
        )
        return None
    if is_mounted and live.root.is_mounted(target):
        return None
    try:
        wanted = os.stat(source)
    except OSError as error:
        if is_mounted:
            made.skipped.append(f"{target}: the host has no {source}")
            return None
        raise fault("GH1752", path=source, reason=error.strerror) from error
    found = live.root.status(target)
    if found is not None and (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
        return None
    if found is None:
        try:
            live.root.writer(target)
        except CrossingError as error:
            if ".so" in target:  # without a library the device is useless
                error.filename = target
                raise
            made.skipped.append(f"{target}: a volume is mounted over its directory")
            return None
    bind = Bind(source, target, attributes_of(mount), is_directory=stat.S_ISDIR(wanted.st_mode))
    bind.is_mapped = maps_owners(live, mount)
    return bind


def maps_owners(live: Live, mount: Mount) -> bool:
    """Return whether a mount's files are to have their owners in the container's namespace."""
    is_asked = not oci_spec.ID_MAPPED.isdisjoint(mount.get("options") or ())
    return is_asked and not live.process.in_initial_user_namespace()


def attributes_of(mount: Mount) -> int:
    """Return the options of a mount as the attributes of mount_setattr(2)."""
    options = mount.get("options") or ()
    return sum(bit for word, bit in ATTRIBUTES.items() if word in options)


def _plan_files(live: Live, wanted: DesiredState, made: HotplugPlan) -> None:
    for provision in wanted.provisions:
        dry_run = DryRunRoot(live.root)
        failures = provide(dry_run, provision)
        made.skipped += [f"{failure.filename}: {failure.strerror}" for failure in failures]
        if dry_run.changes:
            made.operations.append(LiveFiles(provision, dry_run.changes, failures))


def _plan_rules(live: Live, wanted: DesiredState, made: HotplugPlan) -> None:
    missing: list[Rule] = []
    nodes: dict[Rule, str] = {}
    hosts: dict[Rule, str] = {}
    decides = live.rules.version != "none"
    for node in wanted.edits.get("deviceNodes") or ():
        rule = rule_of(node)
        if rule is None:
            continue
        allowed = decides and live.rules.verdict(*rule.device, rule.access)[0]
        if allowed and node["path"] not in wanted.denied:
            continue
        missing.append(rule)
        nodes[rule] = node["path"]
        hosts[rule] = node.get("hostPath") or node["path"]
    if missing and not decides:
        made.skipped.append(f"device rules: {live.rules.why_none}")
    elif missing:
        made.operations.append(AccessStep(missing, nodes, hosts))


def rule_of(node: DeviceNode) -> Rule | None:
    """Return the device rule that a node needs, None for a pipe."""
    device = oci_spec.oci_device(node)
    if device["type"] not in "bc":
        return None
    numbers = device["major"], device["minor"]
    return Rule(True, device["type"], *numbers, node.get("permissions") or "rwm")
