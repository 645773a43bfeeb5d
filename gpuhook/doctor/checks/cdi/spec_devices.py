# SPDX-License-Identifier: Apache-2.0
"""The devices of CDI specs: they are the GPUs and MIG devices of the node in its present state."""

from __future__ import annotations

from gpuhook.doctor.checks.cdi.specs import DRIVER, each, stale_spec
from gpuhook.node_facts.check import absent, check, first_items, ok
from gpuhook.node_facts.sources import node_tree
from gpuhook.vendors.nvidia.doctor.facts import driver_facts as facts
from gpuhook.vendors.nvidia.doctor.facts import gpu_loss
from gpuhook.vendors.nvidia.hot import host_fingerprint, mig_capabilities, vocabulary
from gpuhook.vendors.nvidia.spec import device_selection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.node_facts.cdi_specs import SpecFile
    from gpuhook.node_facts.check import ExaminedNode, Findings
    from gpuhook.vendors.nvidia.inventory import inventory

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_GPUS = "/proc/driver/nvidia/gpus"
_NODE = "/dev/nvidia-caps/nvidia-cap"


@check(
    "specs.instances",
    "The MIG devices in the specs exist",
    needs=("driver.module", "devices.capabilities"),
)
@each
def _instances(node: ExaminedNode, one: SpecFile) -> Findings:
    in_spec = {path for path in one.nodes() if _NODE in path}
    known = facts.capabilities(node)
    if not in_spec and not known:
        return absent("the node has no MIG devices", mig_capabilities.CAPABILITIES)
    existing = {vocabulary.capability_node(capability.minor) for capability in known.values()}
    gone = sorted(
        path for path in in_spec if path[path.index("/dev/nvidia-caps") :] not in existing
    )
    if not gone:
        return ok(
            f"the MIG devices of {one.path} exist",
            one.path,
            mig_capabilities.CAPABILITIES,
        )
    message = f"{one.path} describes removed MIG devices: no instance has {first_items(gone)}"
    meaning = (
        "the MIG layout was changed after the spec was generated: containers get devices that do "
        "not exist "
        '(nvidia-smi prints "No devices were found"), and the new ones cannot be resolved'
    )
    return stale_spec(
        node, one, message, meaning, mig_capabilities.MINORS, mig_capabilities.CAPABILITIES
    )


@check(
    "specs.devices",
    "The specs contain exactly the node's GPUs and MIG devices",
    needs=(
        "driver.bus",
        "gpus.nvml",
        "gpus.lost",
        "gpus.seen",
        "devices.gpus",
        "devices.capabilities",
        "specs.instances",
    ),
)
@each
def _devices(node: ExaminedNode, one: SpecFile) -> Findings:
    found = facts.inventory_of(node)
    if found is None:
        return absent("the files of a node do not show which GPUs a spec should contain")
    if one.kind not in gpu_loss.KINDS:
        return absent(f"{one.path} has the kind {one.kind}", one.path)
    known, lacking = _names(found), []
    given = set(one.device_names)
    if given == {device_selection.EVERY}:
        return ok(f"{one.path} describes all GPUs as one", one.path)
    for gpu in found.gpus:
        for instance in device_selection.offered(gpu):
            mine = device_selection.names(gpu, device_selection.STRATEGIES, instance)
            trouble = gpu.lost or (instance is not None and instance.trouble)
            if given.isdisjoint(mine) and not trouble and mine:
                lacking.append(mine[0])
    gone = sorted(given - known - {device_selection.EVERY})
    if not gone and not lacking:
        return ok(f"{one.path} has every GPU and MIG device", one.path)
    if gone:
        message = f"{one.path} describes {first_items(gone)}, which the node does not have"
        meaning = (
            "the GPUs or MIG devices were changed after the spec was generated: containers with "
            "these find no device, or a different one than they requested"
        )
        return stale_spec(node, one, message, meaning)
    message = f"{one.path} lacks {first_items(lacking)}, which the node has"
    meaning = (
        'containers that request them do not start: "unresolvable CDI devices '
        f'{one.kind}={lacking[0]}"'
    )
    return stale_spec(node, one, message, meaning)


def _names(found: inventory.Node) -> set[str]:
    return {
        name
        for gpu in found.gpus
        for instance in (device_selection.offered(gpu) if gpu.lost is None else (None,))
        for name in device_selection.names(gpu, device_selection.STRATEGIES, instance)
    }


@check(
    "specs.fresh",
    "gpuhook's specs match this boot, driver and MIG configuration",
    needs=(
        "driver.bus",
        DRIVER,
        "devices.uvm",
        "devices.capabilities",
        "specs.instances",
        "specs.devices",
        "specs.mounts",
    ),
)
@each
def _fresh(node: ExaminedNode, one: SpecFile) -> Findings:
    recorded = [job for job in one.jobs() if job.fingerprint]
    if not recorded:
        return absent(f"{one.path} contains no host fingerprint", one.path)
    job = recorded[0]
    recorded_parts = dict(part.partition("=")[::2] for part in job.fingerprint.split(","))
    changed = [
        phrase
        for part in host_fingerprint.PARTS
        if part in recorded_parts
        for phrase in _changed(node, part, recorded_parts[part], job.libcuda)
    ]
    if not changed:
        return ok(f"{one.path} matches the current state of the host", one.path, job.libcuda)
    message = f"{one.path} does not match the current state of this host ({'; '.join(changed)})"
    meaning = (
        "gpuhook does not use it, as nodes and files may have changed: GH1120, the CDI spec "
        "does not match the current state of this host"
    )
    return stale_spec(node, one, message, meaning, job.libcuda)


def _changed(node: ExaminedNode, part: str, before: str, libcuda: str) -> Iterable[str]:
    """Yield the difference in one part of a fingerprint."""
    now = _part(node, part, libcuda)
    if part == "tree":
        before, now = before.partition("-")[2], now.partition("-")[2]
        # A copy of the node has other inode numbers.
        if _file(before) != _file(now):
            yield f"{libcuda} was replaced"
    elif before != now:
        yield f"{part}: was {before or 'none'}, is {now or 'none'}"


def _file(identity: str) -> tuple[str, str]:
    """Return the size and the time in seconds: copies do not keep the nanoseconds."""
    size, _, nanoseconds = identity.partition("-")
    return size, nanoseconds[:-9]


def _part(node: ExaminedNode, part: str, libcuda: str) -> str:
    if part == "boot":
        return node_tree.line(node.tree, _BOOT_ID)
    if part == "driver":
        return facts.driver_mark(node)
    if part == "tree":
        status = node.tree.status(libcuda) if libcuda else None
        return "" if status is None else f"0-{status.size}-{int(status.mtime) * 10**9}"
    if part == "gpus":
        return host_fingerprint.gpus_of(node.tree.names(_GPUS))
    if part == "majors":
        return host_fingerprint.majors(node.tree.read(facts.DEVICES) or b"")
    instances = facts.compute_instances(node)
    return host_fingerprint.mig_of(node.tree.read(mig_capabilities.MINORS) or b"", instances)


CHECKS = (_instances, _devices, _fresh)
