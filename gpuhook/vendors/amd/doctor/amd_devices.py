# SPDX-License-Identifier: Apache-2.0
"""The device nodes of AMD GPUs, and the agreement of DRM and KFD on the GPUs."""

from __future__ import annotations

from gpuhook.node_facts.check import (
    FAILED,
    WARNING,
    Finding,
    absent,
    check,
    first_items,
    ok,
    unless,
)
from gpuhook.vendors.amd.doctor import amd_facts as facts
from gpuhook.vendors.amd.doctor.amd_driver import ANSWERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.node_facts.check import ExaminedNode, Findings

DRM, KFD, TOPOLOGY, NODES = "amd.drm", "amd.kfd", "amd.topology", "amd.nodes"
_LOG = "dmesg | grep -i amdgpu | tail -n 40"
_NEEDS = (ANSWERS,)


@check(DRM, "Every GPU of amdgpu has its DRM device", needs=_NEEDS)
@unless(facts.no_gpus)
def _drm(node: ExaminedNode) -> Findings:
    lacking = [gpu for gpu in facts.gpus(node) if gpu.minor is None]
    if not lacking:
        return ok("every GPU has a render node in sysfs", facts.BOUND)
    return [
        Finding(
            FAILED,
            f"{gpu.bus_id} has no render node in {gpu.directory}/drm",
            subject=gpu.bus_id,
            meaning="amdgpu has not initialized the GPU, or it failed: no container gets it, and "
            "rocm-smi does not list it",
            command=f"{_LOG}; echo 1 > /sys/bus/pci/devices/{gpu.bus_id}/remove && "
            "echo 1 > /sys/bus/pci/rescan  # if that fails, reboot",
            looked_at=(f"{gpu.directory}/drm",),
        )
        for gpu in lacking
    ]


@check(KFD, "/dev/kfd, which ROCm needs, exists", needs=_NEEDS)
@unless(facts.no_gpus)
def _kfd(node: ExaminedNode) -> Finding:
    number, status = facts.kfd_major(node), node.tree.status(facts.KFD)
    meaning = (
        'HIP, ROCm and OpenCL find no GPU in any container: rocminfo prints "Unable to open '
        '/dev/kfd read-write"; Vulkan and video work'
    )
    looked = (facts.KFD, facts.DEVICES, facts.TOPOLOGY)
    has_topology = node.tree.status(facts.TOPOLOGY) is not None
    if number is None and not has_topology:
        message = "the kernel has no KFD: it was built without CONFIG_HSA_AMD"
        command = "use a kernel with CONFIG_HSA_AMD=y, or AMD's package amdgpu-dkms"
        return Finding(WARNING, message, facts.KFD, meaning, command, looked)
    make = f"mknod -m 0660 {facts.KFD} c {number} 0 && chgrp render {facts.KFD}"
    if status is None:
        command = make if number is not None else "udevadm trigger --subsystem-match=kfd"
        return Finding(FAILED, f"{facts.KFD} is missing", facts.KFD, meaning, command, looked)
    is_right = status.is_character_device and number in (None, status.major)
    if is_right:
        return ok(f"{facts.KFD} exists", *looked)
    kind = f"{status.major}:{status.minor}" if status.is_character_device else "no device node"
    message = f"{facts.KFD} is {kind}, but the kernel has {number}:0"
    return Finding(FAILED, message, facts.KFD, meaning, f"rm -rf {facts.KFD} && {make}", looked)


@check(TOPOLOGY, "KFD's files of the GPUs can be read", needs=(ANSWERS, KFD))
@unless(facts.no_gpus)
def _topology(node: ExaminedNode) -> Finding:
    found = facts.topology(node)
    if not found.refused:
        return ok(f"KFD has {len(found.nodes)} GPUs and partitions", facts.NODES)
    return Finding(
        WARNING,
        f"KFD refuses to read {first_items(found.refused)} (operation not permitted)",
        meaning="the device cgroup of this process lacks read and write access to the render "
        f"nodes (c {facts.DRM_MAJOR}:* rw), which KFD checks: the partitions and their memory are "
        "unknown here, and a device plugin with the same privileges does not offer them",
        command="run it as root on the node, or in a privileged container: `securityContext: "
        "{privileged: true}`, kubectl debug node/NAME --profile=sysadmin",
        looked_at=found.refused,
    )


@check(NODES, "Every AMD GPU and partition has its render node in /dev", needs=(ANSWERS, DRM))
@unless(facts.no_gpus)
def _nodes(node: ExaminedNode) -> Findings:
    minors = {gpu.minor for gpu in facts.gpus(node) if gpu.minor is not None}
    minors |= facts.device_minors(node)
    found = [finding for minor in sorted(minors) for finding in _wrong_node(node, minor)]
    return found or [ok(f"all {len(minors)} render nodes exist", facts.DRI)]


def _wrong_node(node: ExaminedNode, minor: int) -> Iterable[Finding]:
    path = facts.render_path(minor)
    status = node.tree.status(path)
    number = (facts.DRM_MAJOR, minor)
    if status and status.is_character_device and (status.major, status.minor) == number:
        return
    message = f"{path} is missing"
    if status is not None:
        kind = f"{status.major}:{status.minor}" if status.is_character_device else "no device node"
        message = f"{path} is {kind}, but amdgpu has {facts.DRM_MAJOR}:{minor}"
    yield Finding(
        FAILED,
        message,
        subject=path,
        meaning="no container can use this GPU or partition: engines report "
        f'"{path}: no such file or directory", or the container gets another device',
        command=f"rm -rf {path} && mkdir -p {facts.DRI} && mknod -m 0660 {path} c "
        f"{facts.DRM_MAJOR} {minor} && chgrp render {path}",
        looked_at=(path, facts.BOUND),
    )


@check("amd.twins", "DRM and KFD have the same GPUs", needs=(ANSWERS, DRM, KFD))
@unless(facts.no_gpus)
def _twins(node: ExaminedNode) -> Findings:
    found = facts.topology(node)
    if found.refused:
        return absent("KFD refuses to read its files (amd.topology)")
    minors = {one.minor for one in found.nodes}
    faults = [
        _twin(
            f"{facts.NODES}/{one.number}",
            f"KFD's node {one.number} has the render minor {one.minor}, which no DRM device has",
            "ROCm lists a GPU that it cannot open, and no container gets it",
            FAILED,
        )
        for one in found.nodes
        if one.minor not in facts.drm_minors(node)
    ]
    faults += [
        _twin(
            gpu.bus_id,
            f"{gpu.bus_id} (renderD{gpu.minor}) has no node in KFD's topology",
            "HIP, ROCm and OpenCL do not find this GPU: KFD does not support it, or its "
            "initialization failed; Vulkan and video work",
            WARNING,
        )
        for gpu in facts.gpus(node)
        if gpu.minor is not None and gpu.minor not in minors
    ]
    return faults or ok("each GPU of DRM has its node in KFD's topology", facts.NODES)


def _twin(subject: str, message: str, meaning: str, status: str) -> Finding:
    command = "dmesg | grep -iE 'kfd|amdgpu' | tail -n 40; systemctl reboot"
    return Finding(status, message, subject, meaning, command, (facts.NODES, facts.BOUND))


CHECKS = (_drm, _kfd, _topology, _nodes, _twins)
