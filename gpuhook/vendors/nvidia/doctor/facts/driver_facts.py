# SPDX-License-Identifier: Apache-2.0
"""The driver and the GPUs by the files of a node.

The reading `inventory` has the answers of NVML. All paths are those of the node.
"""

from __future__ import annotations

from gpuhook.node_facts import pci_facts
from gpuhook.node_facts.check import absent, fact
from gpuhook.node_facts.sources import node_readings, node_tree
from gpuhook.vendors.nvidia.devices import driver_nodes
from gpuhook.vendors.nvidia.gpu import features
from gpuhook.vendors.nvidia.hot import host_fingerprint, mig_capabilities
from gpuhook.vendors.nvidia.inventory import dump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.node_facts.check import ExaminedNode, Finding
    from gpuhook.node_facts.pci_facts import PciDevice
    from gpuhook.vendors.nvidia.hot.mig_capabilities import Capability
    from gpuhook.vendors.nvidia.inventory import inventory

VERSION, PROC_VERSION = "/sys/module/nvidia/version", "/proc/driver/nvidia/version"
DEVICES, PARAMS = "/proc/devices", "/proc/driver/nvidia/params"
GPUS, PCI = "/proc/driver/nvidia/gpus", pci_facts.PCI
SWITCHES = "/proc/driver/nvidia-nvswitch/devices"
_VENDOR = f"0x{features.PCI_VENDOR}"
_BRIDGE = "0x0680"  # of PCI's class codes; NVSwitches are "other bridges"


def is_wsl(node: ExaminedNode) -> bool:
    """Return whether the node is WSL, which has the GPUs of Windows."""
    return node.tree.status("/dev/dxg") is not None


def is_tegra(node: ExaminedNode) -> bool:
    """Return whether the only GPU is that of a Tegra chip, which has its own kind of driver.

    A GPU on the PCI bus, of an IGX or Thor, has the usual driver.
    """
    return node.tree.status(host_fingerprint.TEGRA_RELEASE) is not None and not pci_gpus(node)


def module_version(node: ExaminedNode) -> str:
    """Return the version of the loaded kernel module, "" if none is loaded.

    It is also "" for a Tegra: its module has neither CUDA nor the numbers of /proc/devices.
    """
    return "" if is_tegra(node) else _loaded_version(node)


def no_module(node: ExaminedNode) -> Finding | None:
    """Return that no kernel module is loaded, None if one is."""
    return None if module_version(node) else absent("no kernel module is loaded")


def other_driver(node: ExaminedNode) -> Finding | None:
    """Return that WSL and Tegra have another kind of driver, None for other systems."""
    if is_wsl(node) or is_tegra(node):
        return absent("this system has a different kind of driver")
    return None


def driver_mark(node: ExaminedNode) -> str:
    """Return the driver's part of a fingerprint: its version, or the release of a Tegra."""
    release = host_fingerprint.release_in(node_tree.line(node.tree, host_fingerprint.TEGRA_RELEASE))
    return _loaded_version(node) or release


@fact
def _loaded_version(node: ExaminedNode) -> str:
    version = node_tree.line(node.tree, VERSION)
    if version:
        return version
    words = node_tree.line(node.tree, PROC_VERSION).split()
    return next((word for word in words if word[:1].isdigit() and "." in word), "")


def is_open_module(node: ExaminedNode) -> bool:
    """Return whether the module is the open one, which requires the GSP's firmware."""
    return "Open Kernel Module" in node_tree.line(node.tree, PROC_VERSION)


@fact
def majors(node: ExaminedNode) -> dict[str, int]:
    """Return name -> major of NVIDIA's character devices in /proc/devices."""
    return mig_capabilities.parse_majors(node_tree.text(node.tree, DEVICES) or "")


def params(node: ExaminedNode) -> dict[str, str]:
    """Return the parameters of the kernel module, by name."""
    pairs = (line.partition(":") for line in (node_tree.text(node.tree, PARAMS) or "").splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


@fact
def gpus(node: ExaminedNode) -> tuple[driver_nodes.ProcGpu, ...]:
    """Return the GPUs that the kernel module drives, ordered by bus id."""
    return tuple(
        driver_nodes.parse_gpu(
            name, (node_tree.text(node.tree, f"{GPUS}/{name}/information") or "").splitlines()
        )
        for name in node.tree.names(GPUS)
    )


@fact
def pci(node: ExaminedNode) -> tuple[PciDevice, ...]:
    """Return the NVIDIA devices on the PCI bus, ordered by bus id."""
    return pci_facts.pci_devices(node, _VENDOR)


def pci_gpus(node: ExaminedNode) -> list[PciDevice]:
    """Return the GPUs on the PCI bus."""
    return [device for device in pci(node) if device.is_gpu]


def has_gpu(node: ExaminedNode) -> bool:
    """Return whether the machine has an NVIDIA GPU that is not reserved for virtual machines."""
    own = [one for one in pci_gpus(node) if one.driver != pci_facts.FOR_GUESTS]
    return bool(own or gpus(node) or module_version(node))


def switches(node: ExaminedNode) -> list[str]:
    """Return the bus ids of the machine's NVSwitches."""
    known = set(node.tree.names(SWITCHES))
    known |= {one.bus_id for one in pci(node) if one.device_class.startswith(_BRIDGE)}
    return sorted(known)


@fact
def inventory_of(node: ExaminedNode) -> inventory.Node | None:
    """Return NVML's inventory of the node, None if NVML did not answer."""
    document: Any = node.readings.document(node_readings.INVENTORY)
    return dump.from_dict(document) if document else None


def lost_minors(node: ExaminedNode) -> set[int]:
    """Return the minors of the lost GPUs; the empty set without NVML's inventory."""
    found = inventory_of(node)
    lost = [gpu.minor for gpu in found.gpus if gpu.lost is not None] if found else []
    return {minor for minor in lost if minor is not None}


@fact
def capabilities(node: ExaminedNode) -> dict[str, Capability]:
    """Return name in mig-minors -> access capability, of the MIG devices of the node.

    A MIG device has one for its compute instance and one for its GPU instance.
    """
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


def gpu_count(count: int) -> str:
    """Return a number of GPUs: "1 GPU", "8 GPUs"."""
    return f"{count} {'GPU' if count == 1 else 'GPUs'}"
