# SPDX-License-Identifier: Apache-2.0
"""CDI specs against the GPUs and MIG devices that there are, and against the host they are of."""

from __future__ import annotations

from gpuhook.doctor.check import SPECS, Check, Finding, absent, ok
from gpuhook.doctor.checks.cdi.specs import DRIVER, each, listed, stale
from gpuhook.doctor.facts import driver_facts as facts
from gpuhook.doctor.facts import gpu_loss
from gpuhook.node import node_tree
from gpuhook.vendors.nvidia.hot import host_fingerprint, mig_capabilities, vocabulary
from gpuhook.vendors.nvidia.spec import device_selection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.doctor.facts.spec_facts import SpecFile
    from gpuhook.vendors.nvidia.inventory import inventory

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_GPUS = "/proc/driver/nvidia/gpus"
_NODE = "/dev/nvidia-caps/nvidia-cap"


def _instances(node: ExaminedNode, one: SpecFile) -> Iterable[Finding]:
    """Compare the capability nodes of a spec with those of the MIG devices, by files alone."""
    given = {path for path in one.nodes() if _NODE in path}
    known = facts.capabilities(node)
    if not given and not known:
        return [absent("there are no MIG devices", mig_capabilities.CAPABILITIES)]
    there = {vocabulary.capability_node(capability.minor) for capability in known.values()}
    gone = sorted(path for path in given if path[path.index("/dev/nvidia-caps") :] not in there)
    if not gone:
        return [
            ok(
                f"{one.path} gives MIG devices that are there",
                one.path,
                mig_capabilities.CAPABILITIES,
            )
        ]
    said = f"{one.path} describes MIG devices that are gone: no instance has {listed(gone)}"
    meaning = (
        "MIG was changed after the spec was made: containers get devices that do not exist "
        '(nvidia-smi says "No devices were found"), and the new ones are unresolvable'
    )
    return [stale(node, one, said, meaning, mig_capabilities.MINORS, mig_capabilities.CAPABILITIES)]


def _devices(node: ExaminedNode, one: SpecFile) -> Iterable[Finding]:
    found = facts.inventory_of(node)
    if found is None:
        return [absent("the GPUs that a spec should have cannot be told from files alone")]
    if one.kind not in gpu_loss.KINDS:
        return [absent(f"{one.path} is of the kind {one.kind}", one.path)]
    known, lacking = _names(found), []
    given = set(one.device_names)
    if given == {device_selection.EVERY}:
        return [ok(f"{one.path} describes all GPUs as one", one.path)]
    for gpu in found.gpus:
        for instance in device_selection.offered(gpu):
            mine = device_selection.names(gpu, device_selection.STRATEGIES, instance)
            trouble = gpu.lost or (instance is not None and instance.trouble)
            if given.isdisjoint(mine) and not trouble and mine:
                lacking.append(mine[0])
    gone = sorted(given - known - {device_selection.EVERY})
    if not gone and not lacking:
        return [ok(f"{one.path} has every GPU and MIG device", one.path)]
    if gone:
        said = f"{one.path} describes {listed(gone)}, which the node does not have"
        meaning = (
            "the GPUs or MIG devices were changed after the spec was made: containers that are "
            "given these find no device, or another one than they asked for"
        )
        return [stale(node, one, said, meaning)]
    said = f"{one.path} lacks {listed(lacking)}, which the node has"
    meaning = (
        'containers that ask for them do not start: "unresolvable CDI devices '
        f'{one.kind}={lacking[0]}"'
    )
    return [stale(node, one, said, meaning)]


def _names(found: inventory.Node) -> set[str]:
    return {
        name
        for gpu in found.gpus
        for instance in (device_selection.offered(gpu) if gpu.lost is None else (None,))
        for name in device_selection.names(gpu, device_selection.STRATEGIES, instance)
    }


def _fresh(node: ExaminedNode, one: SpecFile) -> Iterable[Finding]:
    recorded = [job for job in one.jobs() if job.fingerprint]
    if not recorded:
        return [absent(f"{one.path} does not say of which state of the host it is", one.path)]
    job = recorded[0]
    told = dict(part.partition("=")[::2] for part in job.fingerprint.split(","))
    changed = [
        phrase
        for part in host_fingerprint.PARTS
        if part in told
        for phrase in _changed(node, part, told[part], job.libcuda)
    ]
    if not changed:
        return [ok(f"{one.path} is of this state of the host", one.path, job.libcuda)]
    said = f"{one.path} describes another state of this host ({'; '.join(changed)})"
    meaning = (
        "gpuhook gives no GPU by it, as nodes and files may not be what they were: GH1120, the "
        "CDI spec describes another state of this host"
    )
    return [stale(node, one, said, meaning, job.libcuda)]


def _changed(node: ExaminedNode, part: str, told: str, libcuda: str) -> Iterable[str]:
    """Yield what differs in one part of a fingerprint."""
    now = _part(node, part, libcuda)
    if part == "tree":
        told, now = told.partition("-")[2], now.partition("-")[2]
        # The number of an inode is that of one file system, so not of a copy of the node.
        if _file(told) != _file(now):
            yield f"{libcuda} was replaced"
    elif told != now:
        yield f"{part}: was {told or 'none'}, is {now or 'none'}"


def _file(identity: str) -> tuple[str, str]:
    """Return size and time, to the second: copies do not keep what is finer."""
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


CHECKS: tuple[Check, ...] = (
    Check(
        "specs.instances",
        SPECS,
        "The MIG devices in the specs are those of the node",
        each(_instances),
        needs=("driver.module", "devices.capabilities"),
    ),
    Check(
        "specs.devices",
        SPECS,
        "The specs have the node's GPUs and MIG devices, and no others",
        each(_devices),
        needs=(
            "driver.bus",
            "gpus.nvml",
            "gpus.lost",
            "gpus.seen",
            "devices.gpus",
            "devices.capabilities",
            "specs.instances",
        ),
    ),
    Check(
        "specs.fresh",
        SPECS,
        "gpuhook's specs are of this boot, driver and set of MIG devices",
        each(_fresh),
        needs=(
            "driver.bus",
            DRIVER,
            "devices.uvm",
            "devices.capabilities",
            "specs.instances",
            "specs.devices",
            "specs.mounts",
        ),
    ),
)
