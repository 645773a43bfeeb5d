# SPDX-License-Identifier: Apache-2.0
"""What the files of a node tell of its driver and its GPUs, read once for all checks.

What only NVML knows is in the reading `inventory`. Every path is the node's own.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from gpuhook.doctor import package_commands
from gpuhook.node import node_readings, node_tree
from gpuhook.vendors.nvidia.devices import driver_nodes
from gpuhook.vendors.nvidia.driver import driver_locations
from gpuhook.vendors.nvidia.hot import host_fingerprint, mig_capabilities
from gpuhook.vendors.nvidia.inventory import dump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.vendors.nvidia.hot.mig_capabilities import Capability
    from gpuhook.vendors.nvidia.inventory import inventory

VERSION, PROC_VERSION = "/sys/module/nvidia/version", "/proc/driver/nvidia/version"
DEVICES, PARAMS = "/proc/devices", "/proc/driver/nvidia/params"
GPUS, PCI = "/proc/driver/nvidia/gpus", "/sys/bus/pci/devices"
SWITCHES = "/proc/driver/nvidia-nvswitch/devices"
_VENDOR = "0x10de"
FOR_GUESTS = "vfio-pci"  # the driver of what is given to virtual machines
_DISPLAY, _BRIDGE = "0x03", "0x0680"  # of PCI's class codes; NVSwitches are "other bridges"


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A device of NVIDIA's on the PCI bus: its bus id as the kernel writes it, and its driver."""

    bus_id: str
    device_class: str  # "0x030200"
    driver: str  # "nvidia", "nouveau", "vfio-pci", "" where none is bound

    @property
    def is_gpu(self) -> bool:
        """Whether it is a graphics or compute device, no audio, USB or switch."""
        return self.device_class.startswith(_DISPLAY)


def is_wsl(node: ExaminedNode) -> bool:
    """Return whether the GPUs are those of Windows, reached by WSL's device."""
    return node.tree.status("/dev/dxg") is not None


def is_tegra(node: ExaminedNode) -> bool:
    """Return whether the GPU is that of a system on a chip, with a driver of its own kind.

    One on the PCI bus beside it (IGX), or in its place (Thor), has the driver of all others.
    """
    return node.tree.status(host_fingerprint.TEGRA_RELEASE) is not None and not pci_gpus(node)


def module_version(node: ExaminedNode) -> str:
    """Return the version of the loaded kernel module, "" when none is loaded.

    That of a Tegra does not count: it has neither CUDA nor the numbers of /proc/devices.
    """
    return "" if is_tegra(node) else str(node.once(_loaded_version))


def driver_mark(node: ExaminedNode) -> str:
    """Return what stands for the driver in a fingerprint: a version, or a Tegra's release."""
    release = host_fingerprint.release_in(node_tree.line(node.tree, host_fingerprint.TEGRA_RELEASE))
    return str(node.once(_loaded_version)) or release


def _loaded_version(node: ExaminedNode) -> str:
    version = node_tree.line(node.tree, VERSION)
    if version:
        return version
    words = node_tree.line(node.tree, PROC_VERSION).split()
    return next((word for word in words if word[:1].isdigit() and "." in word), "")


def is_open_module(node: ExaminedNode) -> bool:
    """Return whether the module is the open one, which cannot do without the GSP's firmware."""
    return "Open Kernel Module" in node_tree.line(node.tree, PROC_VERSION)


def majors(node: ExaminedNode) -> dict[str, int]:
    """Return name -> major of NVIDIA's character devices in /proc/devices."""
    found: dict[str, int] = node.once(_majors)
    return found


def _majors(node: ExaminedNode) -> dict[str, int]:
    return driver_nodes.parse_majors((node_tree.text(node.tree, DEVICES) or "").splitlines())


def params(node: ExaminedNode) -> dict[str, str]:
    """Return the parameters of the kernel module, by name."""
    pairs = (line.partition(":") for line in (node_tree.text(node.tree, PARAMS) or "").splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def gpus(node: ExaminedNode) -> tuple[driver_nodes.ProcGpu, ...]:
    """Return the GPUs that the kernel module drives, by bus id."""
    found: tuple[driver_nodes.ProcGpu, ...] = node.once(_gpus)
    return found


def _gpus(node: ExaminedNode) -> tuple[driver_nodes.ProcGpu, ...]:
    return tuple(
        driver_nodes.parse_gpu(
            name, (node_tree.text(node.tree, f"{GPUS}/{name}/information") or "").splitlines()
        )
        for name in node.tree.names(GPUS)
    )


def pci(node: ExaminedNode) -> tuple[PciDevice, ...]:
    """Return NVIDIA's devices on the PCI bus, by bus id."""
    found: tuple[PciDevice, ...] = node.once(_pci)
    return found


def _pci(node: ExaminedNode) -> tuple[PciDevice, ...]:
    found = []
    for name in node.tree.names(PCI):
        if node_tree.line(node.tree, f"{PCI}/{name}/vendor") != _VENDOR:
            continue
        link = node.tree.status(f"{PCI}/{name}/driver", follow=False)
        driver = posixpath.basename(link.target) if link else ""
        found.append(PciDevice(name, node_tree.line(node.tree, f"{PCI}/{name}/class"), driver))
    return tuple(found)


def pci_gpus(node: ExaminedNode) -> list[PciDevice]:
    """Return the GPUs on the PCI bus."""
    return [device for device in pci(node) if device.is_gpu]


def has_gpu(node: ExaminedNode) -> bool:
    """Return whether the machine has a GPU of NVIDIA's for itself, or a driver that says so.

    One that is kept for virtual machines (vfio-pci) does not count.
    """
    own = [one for one in pci_gpus(node) if one.driver != FOR_GUESTS]
    return bool(own or gpus(node) or module_version(node))


def switches(node: ExaminedNode) -> list[str]:
    """Return the bus ids of the machine's NVSwitches."""
    known = set(node.tree.names(SWITCHES))
    known |= {one.bus_id for one in pci(node) if one.device_class.startswith(_BRIDGE)}
    return sorted(known)


def inventory_of(node: ExaminedNode) -> inventory.Node | None:
    """Return what the driver says of the node's GPUs, None where it could not be asked."""
    found: inventory.Node | None = node.once(_inventory)
    return found


def _inventory(node: ExaminedNode) -> inventory.Node | None:
    document: Any = node.readings.document(node_readings.INVENTORY)
    return dump.from_dict(document) if document else None


def lost_minors(node: ExaminedNode) -> set[int]:
    """Return the minors of the GPUs that are lost, as far as the driver was asked."""
    found = inventory_of(node)
    lost = [gpu.minor for gpu in found.gpus if gpu.lost is not None] if found else []
    return {minor for minor in lost if minor is not None}


def install(node: ExaminedNode, debian: str, others: str) -> str:
    """Return the command that installs packages, by what they are called on the node."""
    return package_commands.install(node.tree, debian, others)


def reinstall(node: ExaminedNode, root: str) -> str:
    """Return the command that installs the driver below `root` again."""
    if root == driver_locations.OPERATOR:
        return "kubectl -n gpu-operator delete pod -l app=nvidia-driver-daemonset"
    if root == driver_locations.GKE:
        return "kubectl -n kube-system delete pod -l k8s-app=nvidia-driver-installer"
    return package_commands.reinstall_driver(node.tree)


def capabilities(node: ExaminedNode) -> dict[str, Capability]:
    """Return the access capabilities of the MIG devices there are, by their names in mig-minors.

    Those are of each compute instance, and of the GPU instance that it is in.
    """
    found: dict[str, Capability] = node.once(_capabilities)
    return found


def _capabilities(node: ExaminedNode) -> dict[str, Capability]:
    minors = mig_capabilities.parse_minors(node_tree.text(node.tree, mig_capabilities.MINORS) or "")
    found = {}
    for name in _instances(node):
        described = mig_capabilities.parse_file(
            node_tree.text(node.tree, mig_capabilities.file(name)) or ""
        )
        minor = minors.get(name, described.minor if described else None)
        if minor is not None:
            found[name] = mig_capabilities.Capability(minor, described.mode if described else None)
    return found


def compute_instances(node: ExaminedNode) -> list[str]:
    """Return gpu0/gi1/ci0 and so on, in order: the MIG devices there are."""
    rest = "/access"
    return [name.removesuffix(rest) for name in _instances(node) if "/ci" in name]


def _instances(node: ExaminedNode) -> list[str]:
    """Return the names of the access capabilities of MIG devices, as mig-minors has them."""
    found = []
    for gpu in node.tree.names(mig_capabilities.CAPABILITIES):
        if not gpu.startswith("gpu"):
            continue
        for instance in node.tree.names(f"{mig_capabilities.CAPABILITIES}/{gpu}/mig"):
            below = node.tree.names(f"{mig_capabilities.CAPABILITIES}/{gpu}/mig/{instance}")
            computes = [name for name in below if name.startswith("ci")]
            if instance.startswith("gi") and computes:
                found.append(f"{gpu}/{instance}/access")
                found += [f"{gpu}/{instance}/{name}/access" for name in computes]
    return found


def counted(count: int) -> str:
    """Return a number of GPUs: "1 GPU", "8 GPUs"."""
    return f"{count} {'GPU' if count == 1 else 'GPUs'}"
