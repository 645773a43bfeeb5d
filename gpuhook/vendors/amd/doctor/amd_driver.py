# SPDX-License-Identifier: Apache-2.0
"""The amdgpu driver: it is loaded, is the installed one, and drives the GPUs."""

from __future__ import annotations

import re

from gpuhook.node_facts import package_commands, pci_facts
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
from gpuhook.node_facts.sources import node_tree
from gpuhook.vendors.amd.doctor import amd_facts as facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.check import ExaminedNode, Findings

GPU, MODULE, ANSWERS = "amd.gpu", "amd.module", "amd.answers"
_OLD_DRIVER = "radeon"  # of GPUs that ROCm and amdgpu do not support
_NO_DRIVER = (
    'no container gets a GPU: rocminfo prints "ROCk module is NOT loaded", and /dev/kfd and '
    "/dev/dri/renderD* do not exist"
)
_CONFIGURATIONS = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
_COMMAND_LINE = "/proc/cmdline"
_BLACKLIST = re.compile(
    r"^[ \t]*(?:blacklist[ \t]+amdgpu|install[ \t]+amdgpu[ \t]+\S*/(?:false|true))[ \t]*$",
    re.MULTILINE,
)
_BLACKLIST_ARGUMENT = re.compile(r"\b(?:modprobe\.|module_)blacklist=(?:\S*,)?amdgpu\b")
_ISOLATION = (6, 8)  # the first kernel in which KFD checks the render node of each partition
_SOURCES, _ROCM = "/usr/src", "/opt/rocm/.info/version"
_DKMS = re.compile(r"updates/(?:dkms/)?amdgpu\.ko", re.MULTILINE)


@check(GPU, "The machine has an AMD GPU")
def _gpu(node: ExaminedNode) -> Finding:
    found = facts.pci_gpus(node)
    if not found and facts.gpus(node):
        return ok(f"amdgpu drives {_buses(facts.gpus(node))}", facts.BOUND)
    if not found:
        return absent("this machine has no AMD GPU", pci_facts.PCI)
    return ok(f"AMD GPUs on the PCI bus: {_buses(found)}", pci_facts.PCI)


def _buses(found: tuple[pci_facts.PciDevice, ...] | tuple[facts.DrivenGpu, ...]) -> str:
    return first_items([one.bus_id for one in found])


@check(MODULE, "The amdgpu kernel module is loaded", needs=(GPU,))
def _module(node: ExaminedNode) -> Findings:
    found = facts.pci_gpus(node)
    if facts.has_module(node):
        version = node_tree.line(node.tree, facts.VERSION)
        kind = f"version {version}" if version else "the kernel's own"
        return ok(f"amdgpu is loaded: {kind}", facts.MODULE, facts.VERSION)
    drivers = {one.driver for one in found}
    if not found:
        return absent("this machine has no AMD GPU", pci_facts.PCI)
    if drivers == {_OLD_DRIVER}:
        return absent("the driver of the AMD GPUs is radeon: they are too old for amdgpu")
    if drivers == {pci_facts.FOR_GUESTS}:
        return [_reserved(one) for one in found]
    return _unloaded(node)


def _reserved(one: pci_facts.PciDevice) -> Finding:
    return Finding(
        WARNING,
        f"the driver of {one.bus_id} is {pci_facts.FOR_GUESTS}: it is reserved for virtual "
        "machines",
        subject=one.bus_id,
        meaning="no container gets this GPU",
        command=f"driverctl unset-override {one.bus_id}  # or remove it from the options of "
        "vfio-pci in /etc/modprobe.d and in the kernel's command line; then reboot",
        looked_at=(f"{pci_facts.PCI}/{one.bus_id}/driver",),
    )


def _unloaded(node: ExaminedNode) -> Finding:
    """Return the finding that the module is not loaded, with the reason that the files show."""
    release = node_tree.line(node.tree, facts.RELEASE)
    listing = f"/lib/modules/{release}/modules.dep"
    known = node_tree.text(node.tree, listing) if release else None
    message, command = "the amdgpu kernel module is not loaded", "modprobe amdgpu"
    looked = (facts.MODULE, *_CONFIGURATIONS, _COMMAND_LINE, listing)
    if path := _blacklist(node):
        message += f": {path} blacklists it"
        command = f"sed -i '/amdgpu/s/^/#/' {path} && (update-initramfs -u || dracut --force) && "
        command += "modprobe amdgpu"
    elif _BLACKLIST_ARGUMENT.search(node_tree.text(node.tree, _COMMAND_LINE) or ""):
        message += f": the kernel's command line ({_COMMAND_LINE}) blacklists it"
        command = (
            "sed -i 's/[a-z_.]*blacklist=amdgpu//' /etc/default/grub && (update-grub || "
            "grub2-mkconfig -o /boot/grub2/grub.cfg) && systemctl reboot"
        )
    elif known is not None and "/amdgpu.ko" not in known:
        message += f": the kernel {release} has none"
        extra = package_commands.install(
            node.tree, f"linux-modules-extra-{release}", "kernel-modules"
        )
        command = f"{extra} && modprobe amdgpu  # or AMD's package amdgpu-dkms"
    else:
        command += " && rocminfo || dmesg | grep -i amdgpu"
    return Finding(FAILED, message, meaning=_NO_DRIVER, command=command, looked_at=looked)


def _blacklist(node: ExaminedNode) -> str:
    """Return the path of a file that keeps modprobe from loading amdgpu, "" if there is none."""
    for directory in _CONFIGURATIONS:
        for name in node.tree.names(directory):
            path = f"{directory}/{name}"
            if name.endswith(".conf") and _BLACKLIST.search(node_tree.text(node.tree, path) or ""):
                return path
    return ""


@check(ANSWERS, "The amdgpu driver answers", needs=(MODULE,))
@unless(facts.no_gpus)
def _answers(node: ExaminedNode) -> Finding:
    silent = facts.silent_files(node)
    if not silent:
        return ok("amdgpu answers", facts.BOUND, facts.NODES)
    return Finding(
        FAILED,
        f"the amdgpu driver does not answer: {silent[0]}",
        subject=silent[0],
        meaning="a GPU is being reset, or hangs: commands that need these files end with GH2561, "
        "and the device plugin marks the AMD GPUs unhealthy",
        command="dmesg | grep amdgpu  # wait for the end of a reset; after a hang, drain the node "
        "and reboot",
        looked_at=silent,
    )


@check("amd.bound", "amdgpu drives every AMD GPU on the PCI bus", needs=(ANSWERS,))
def _bound(node: ExaminedNode) -> Findings:
    if not facts.has_module(node):
        return absent("amdgpu is not loaded")
    own = {one.bus_id for one in facts.gpus(node)}
    rest = [one for one in facts.pci_gpus(node) if one.bus_id not in own]
    if own and not rest:
        return ok(f"amdgpu drives {len(own)} of {len(own)} AMD GPUs", facts.BOUND)
    if not own and not rest:
        return absent("amdgpu is loaded, but this machine has no AMD GPU", facts.BOUND)
    return [_unbound(one, is_only=not own) for one in rest]


def _unbound(one: pci_facts.PciDevice, *, is_only: bool) -> Finding:
    if one.driver == pci_facts.FOR_GUESTS:
        return _reserved(one)
    return Finding(
        FAILED if is_only and not one.driver else WARNING,
        f"the driver of {one.bus_id} is {one.driver or 'none'}, not amdgpu",
        subject=one.bus_id,
        meaning="no container gets this GPU: rocm-smi and the node's resources do not include it",
        command=f"dmesg | grep -iE 'amdgpu|{one.bus_id}'  # the driver's initialization failed, or "
        "it is too old for the GPU",
        looked_at=(f"{pci_facts.PCI}/{one.bus_id}/driver", facts.BOUND),
    )


@check("amd.version", "The loaded amdgpu is the installed one", needs=(ANSWERS,))
@unless(facts.no_gpus)
def _version(node: ExaminedNode) -> Finding:
    loaded = node_tree.line(node.tree, facts.VERSION)
    release = node_tree.line(node.tree, facts.RELEASE)
    listing = f"/lib/modules/{release}/modules.dep"
    installed = [
        name.removeprefix("amdgpu-").partition("-")[0]
        for name in node.tree.names(_SOURCES)
        if name.startswith("amdgpu-")
    ]
    has_package = _DKMS.search(node_tree.text(node.tree, listing) or "") is not None
    looked = (facts.VERSION, listing, _SOURCES)
    reboot = "systemctl reboot  # or, after all programs that use a GPU have stopped: "
    reboot += "modprobe -r amdgpu && modprobe amdgpu"
    meaning = "programs get the old driver's functions and faults until it is loaded again"
    if not loaded and has_package:
        message = "AMD's package has a driver for this kernel, but the kernel's own is loaded"
        return Finding(WARNING, message, "", meaning, f"depmod -a && {reboot}", looked)
    if loaded and installed and loaded not in installed:
        message = f"amdgpu {loaded} is loaded, but {first_items(installed)} is installed"
        return Finding(WARNING, message, "", meaning, reboot, looked)
    rocm = node_tree.line(node.tree, _ROCM)
    note = f"; ROCm {rocm} is on the host, and containers use their own" if rocm else ""
    return ok(f"the loaded driver is {loaded or f'that of the kernel {release}'}{note}", *looked)


@check("amd.isolation", "The kernel separates the partitions of a GPU", needs=(ANSWERS,))
@unless(facts.no_gpus)
def _isolation(node: ExaminedNode) -> Finding:
    release = node_tree.line(node.tree, facts.RELEASE)
    number = tuple(int(part) for part in re.findall(r"\d+", release)[:2])
    if len(facts.device_minors(node)) <= len(facts.gpus(node)):
        return absent("no AMD GPU is partitioned")
    if node_tree.line(node.tree, facts.VERSION) or not number or number >= _ISOLATION:
        return ok("the kernel checks the render node of each partition", facts.RELEASE)
    return Finding(
        WARNING,
        f"the kernel {release} is older than 6.8: KFD grants a partition by the render node of the "
        "first one of its GPU",
        meaning="a container with the first partition can use all partitions of the GPU, and one "
        "with another partition none (some distributions have the correction in older kernels)",
        command=package_commands.install(node.tree, "amdgpu-dkms")
        + "  # of AMD's repository; or a kernel from 6.8",
        looked_at=(facts.RELEASE,),
    )


CHECKS = (_gpu, _module, _answers, _bound, _version, _isolation)
