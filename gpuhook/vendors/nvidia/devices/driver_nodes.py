# SPDX-License-Identifier: Apache-2.0
"""The device nodes of the driver below the dev root, checked against the kernel's numbers.

Majors come from /proc/devices and minors from NVML or /proc/driver/nvidia; nodes are reported as
stat(2) finds them. A missing or wrong node is a fault for containers, and a warning for reports.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from dataclasses import dataclass, replace

from gpuhook.errors import GpuhookError, fault
from gpuhook.vendors.nvidia.hot import mig_capabilities
from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode, Gpu

# Names of majors in /proc/devices; drivers before 545 have "nvidia-frontend". Source of names and
# minors: nvidia-modprobe-utils.
FRONTEND = ("nvidia", "nvidia-frontend", "nvidiactl")
UVM = ("nvidia-uvm",)
# Each control node: the names of its major, and its minor.
CONTROL_NODES = {
    "/dev/nvidiactl": (FRONTEND, 255),
    "/dev/nvidia-modeset": (("nvidia-modeset", *FRONTEND), 254),
    "/dev/nvidia-uvm": (UVM, 0),
    "/dev/nvidia-uvm-tools": (UVM, 1),
}
_ODD = "{name!a} in /proc/driver/nvidia/gpus is not a PCI bus id; skipped"
_TWINS = (
    "GPU {bus} has the {what} {value} in /proc/driver/nvidia/gpus, but so does another GPU: "
    "the {what} is ignored"
)
_GPUS = "proc/driver/nvidia/gpus"
_BUS_ID = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_UUID = re.compile(r"GPU-[0-9A-Za-z-]{1,80}")
_MAX_NUMA = (1 << 10) - 1  # linux/numa.h
_MAKE = "`gpuhook system create-device-nodes --load-kernel-modules`"
# The warning about each missing control node; None: it is required.
_ABSENT = {
    "/dev/nvidiactl": None,
    "/dev/nvidia-uvm": f"CUDA will not start; run {_MAKE}",
    "/dev/nvidia-uvm-tools": f"run {_MAKE}",
    "/dev/nvidia-modeset": "",
}


@dataclass(frozen=True, slots=True)
class NodesFound:
    """The existing device nodes, and warnings about the others."""

    nodes: tuple[DeviceNode, ...]
    warnings: tuple[str, ...]


def majors(host_root: str) -> dict[str, int]:
    """Return name -> major of NVIDIA's character devices in <host_root>/proc/devices."""
    return mig_capabilities.parse_majors(mig_capabilities.proc_text(host_root, "/proc/devices"))


def find(
    dev_root: str, numbers: dict[str, int], gpus: tuple[Gpu, ...], *, require: bool
) -> NodesFound:
    """Return the control nodes and those of the GPUs that are not lost, below `dev_root`.

    With `require`, a missing or wrong /dev/nvidiactl, or node of a GPU, raises GH1210, as
    does a wrong /dev/nvidia-uvm. A missing optional node is a warning.
    """
    search = _Search(dev_root, numbers, require=require)
    for path, absent in _ABSENT.items():
        search.add(path, CONTROL_NODES[path][0], absent=absent)
    for gpu in gpus:
        if gpu.lost is not None:
            continue
        if gpu.minor is None:
            search.warnings.append(f"GPU {gpu.index}: unknown minor number, so no device node")
            continue
        search.add(f"/dev/nvidia{gpu.minor}", FRONTEND, minor=gpu.minor)
    return NodesFound(tuple(search.nodes), tuple(search.warnings))


class _Search:
    def __init__(self, dev_root: str, numbers: dict[str, int], *, require: bool) -> None:
        self._root = dev_root
        self._numbers = numbers
        self._require = require
        self.nodes: list[DeviceNode] = []
        self.warnings: list[str] = []

    def add(
        self, path: str, names: tuple[str, ...], *, minor: int = 255, absent: str | None = None
    ) -> None:
        """Look for the node; `absent` is the warning about a missing optional one."""
        host_path = os.path.join(self._root, path.lstrip("/"))
        try:
            status = os.stat(host_path)
        except FileNotFoundError:
            self._missing(host_path, minor, absent)
            return
        wrong = _wrong(host_path, status, names, self._numbers, minor)
        if wrong is not None:
            self._refuse(wrong)
            return
        self.nodes.append(DeviceNode.of_status(path, host_path, status))

    def _missing(self, host_path: str, minor: int, absent: str | None) -> None:
        if absent is None:
            way = f"create it with `gpuhook system create-device-nodes` ({_by_hand(minor)})"
            way += ", or set the directory of the nodes with --dev-root"
            self._refuse(fault("GH1210", path=host_path, reason="no such device node", way=way))
        elif absent:
            self.warnings.append(f"{host_path}: no such device node: {absent}")

    def _refuse(self, wrong: GpuhookError) -> None:
        if self._require:
            raise wrong
        self.warnings.append(wrong.message)


def _wrong(
    host_path: str,
    status: os.stat_result,
    names: tuple[str, ...],
    numbers: dict[str, int],
    minor: int,
) -> GpuhookError | None:
    """Return the fault of a node that is not a device, or has a major other than the module's."""
    if not stat.S_ISCHR(status.st_mode):
        return _replaceable(host_path, "it is not a character device", minor)
    name = next((name for name in names if name in numbers), None)
    found = os.major(status.st_rdev)
    if name is None or found == numbers[name]:
        return None
    reason = f"it has major number {found}, but kernel module {name} has {numbers[name]}"
    return _replaceable(host_path, reason, minor)


def _replaceable(host_path: str, reason: str, minor: int) -> GpuhookError:
    way = "replace it with `gpuhook system create-device-nodes --replace`"
    return fault("GH1210", path=host_path, reason=reason, way=f"{way} ({_by_hand(minor)})")


def _by_hand(minor: int) -> str:
    return f"by hand: nvidia-modprobe -c {minor}, for nvidia-uvm -c 0 -u"


@dataclass(frozen=True, slots=True)
class ProcGpu:
    """A GPU by /proc/driver/nvidia/gpus/<bus id>/information."""

    pci_bus_id: str  # NVML's form
    minor: int | None
    uuid: str | None
    model: str | None
    is_excluded: bool = False  # by NVreg_ExcludedGpus: NVML does not number such a GPU


def proc_gpus(host_root: str) -> tuple[ProcGpu, ...]:
    """Return the GPUs of the kernel module, by bus id, without NVML.

    A minor number or UUID of two GPUs is dropped from both.
    """
    return _distinct(_listed_gpus(host_root))[0]


def doubts(host_root: str) -> tuple[str, ...]:
    """Return sentences about contradictions among the kernel module's GPUs."""
    odd = (name for name in _gpu_names(host_root) if not _BUS_ID.fullmatch(name))
    twins = _distinct(_listed_gpus(host_root))[1]
    return (*(_ODD.format(name=name) for name in odd), *twins)


def _listed_gpus(host_root: str) -> list[ProcGpu]:
    directory = os.path.join(host_root, _GPUS)
    return [
        parse_gpu(name, _lines(os.path.join(directory, name, "information")))
        for name in _gpu_names(host_root)
        if _BUS_ID.fullmatch(name)
    ]


def _distinct(known: list[ProcGpu]) -> tuple[tuple[ProcGpu, ...], list[str]]:
    """Return (the GPUs without minors and UUIDs that two of them have, sentences about these)."""
    minors = Counter(one.minor for one in known)
    uuids = Counter(one.uuid for one in known)
    found, sentences = [], []
    for one in known:
        kept = one
        if one.minor is not None and minors[one.minor] > 1:
            kept = replace(kept, minor=None)
            sentences.append(
                _TWINS.format(bus=one.pci_bus_id, what="minor number", value=one.minor)
            )
        if one.uuid is not None and uuids[one.uuid] > 1:
            kept = replace(kept, uuid=None)
            sentences.append(_TWINS.format(bus=one.pci_bus_id, what="UUID", value=one.uuid))
        found.append(kept)
    return tuple(found), sentences


def _gpu_names(host_root: str) -> list[str]:
    try:
        return sorted(os.listdir(os.path.join(host_root, _GPUS)))
    except OSError:
        return []


def parse_gpu(name: str, lines: list[str]) -> ProcGpu:
    """Return the GPU of the directory `name`, with the lines of its file `information`."""
    facts = {}
    for line in lines:
        key, _, value = line.partition(":")
        facts[key.strip()] = value.strip()
    domain, _, rest = name.partition(":")
    minor, uuid = facts.get("Device Minor", ""), facts.get("GPU UUID", "")
    return ProcGpu(
        pci_bus_id=f"{domain:0>8}:{rest}".upper(),
        minor=mig_capabilities.parse_number(minor, mig_capabilities.MAX_MINOR),
        uuid=uuid if _UUID.fullmatch(uuid) else None,
        model=facts.get("Model") or None,
        is_excluded=facts.get("GPU Excluded", "").lower() == "yes",
    )


def kernel_bus_id(pci_bus_id: str) -> str:
    """Return a PCI bus id of NVML in the kernel's form, 0000:00:1e.0."""
    domain, _, rest = pci_bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def pci_directory(host_root: str, pci_bus_id: str) -> str:
    """Return the directory below /sys of the PCI device with this bus id (in NVML's form)."""
    return os.path.join(host_root, "sys/bus/pci/devices", kernel_bus_id(pci_bus_id))


def numa_node(host_root: str, pci_bus_id: str | None) -> int | None:
    """Return the NUMA node that the PCI device is attached to, None if the kernel has none."""
    if pci_bus_id is None:
        return None
    lines = _lines(os.path.join(pci_directory(host_root, pci_bus_id), "numa_node"))
    number = lines[0].strip() if lines else ""
    return mig_capabilities.parse_number(number, _MAX_NUMA)  # "-1": the platform has no NUMA nodes


def masks_params(host_root: str) -> bool:
    """Return whether the driver lets its libraries make device nodes (ModifyDeviceFiles: 1)."""
    lines = _lines(os.path.join(host_root, "proc/driver/nvidia/params"))
    return any(line.strip() == "ModifyDeviceFiles: 1" for line in lines)


def _lines(path: str) -> list[str]:
    return mig_capabilities.proc_text("/", path).splitlines()
