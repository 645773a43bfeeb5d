# SPDX-License-Identifier: Apache-2.0
"""AMD's GPUs by the files of a node: the PCI bus, the amdgpu driver, DRM, and KFD's topology.

The facts come from the node's tree, so that a support bundle answers as the node did. KFD refuses
its files of a GPU (EPERM) to a process whose device cgroup denies the GPU's render node.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from gpuhook.node_facts import cdi_specs, pci_facts
from gpuhook.node_facts.check import absent, fact
from gpuhook.node_facts.sources import node_tree
from gpuhook.vendors.amd.hot import amd_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.node_facts.cdi_specs import SpecFile
    from gpuhook.node_facts.check import ExaminedNode, Finding
    from gpuhook.node_facts.pci_facts import PciDevice

MODULE = "/sys/module/amdgpu"
BOUND = f"{MODULE}/drivers/pci:amdgpu"
VERSION = f"{MODULE}/version"  # only a driver from AMD's packages has it
TOPOLOGY = "/sys/class/kfd/kfd/topology"
NODES = f"{TOPOLOGY}/nodes"
PLATFORM, DRM_CLASS = "/sys/devices/platform", "/sys/class/drm"
DEVICES, KFD, DRI = "/proc/devices", "/dev/kfd", "/dev/dri"
RELEASE = "/proc/sys/kernel/osrelease"
DRM_MAJOR = 226
_VENDOR = "0x1002"
_PARTITION = ("amdgpu_xcp_", "amdgpu_xcp.")
_RENDER = "renderD"
# Files whose readers wait for a lock of the driver.
_LOCKED = (
    "current_compute_partition", "current_memory_partition", "mem_info_vram_total",
    "mem_info_vram_used",
)  # fmt: skip
_OF_KFD = ("gpu_id", "properties")


@dataclass(frozen=True, slots=True)
class DrivenGpu:
    """A GPU that amdgpu drives; its `directory` has the driver's files of it.

    `minor` is that of its render node, None if the driver has made none. The modes are "" for a
    GPU that cannot be partitioned.
    """

    bus_id: str
    directory: str
    device_id: str  # "74a1"
    minor: int | None
    compute_mode: str
    memory_mode: str


@dataclass(frozen=True, slots=True)
class KfdDevice:
    """A GPU or partition in KFD's topology; `bus` is its PCI address without the function."""

    number: str
    gpu_id: int
    minor: int
    bus: str
    hive: int


@dataclass(frozen=True, slots=True)
class KfdDevices:
    """KFD's topology: `nodes` are the GPUs and partitions, `refused` the unreadable files."""

    nodes: tuple[KfdDevice, ...] = ()
    refused: tuple[str, ...] = ()


@fact
def pci_gpus(node: ExaminedNode) -> tuple[PciDevice, ...]:
    """Return the GPUs on the PCI bus."""
    return tuple(one for one in pci_facts.pci_devices(node, _VENDOR) if one.is_gpu)


def has_module(node: ExaminedNode) -> bool:
    """Return whether the amdgpu module is loaded."""
    return node.tree.status(MODULE) is not None


@fact
def gpus(node: ExaminedNode) -> tuple[DrivenGpu, ...]:
    """Return the GPUs that amdgpu drives, ordered by bus id."""
    names = [name for name in node.tree.names(BOUND) if name[4:5] == ":"]
    return tuple(_gpu(node, name, f"{BOUND}/{name}") for name in names)


def no_gpus(node: ExaminedNode) -> Finding | None:
    """Return that amdgpu drives no GPU, None if it does."""
    if gpus(node):
        return None
    message = "amdgpu drives no GPU" if pci_gpus(node) else "this machine has no AMD GPU"
    return absent(message, BOUND)


def _gpu(node: ExaminedNode, name: str, directory: str) -> DrivenGpu:
    return DrivenGpu(
        name,
        directory,
        node_tree.line(node.tree, f"{directory}/device").removeprefix("0x"),
        _render_minor(node, directory),
        line(node, f"{directory}/current_compute_partition"),
        line(node, f"{directory}/current_memory_partition"),
    )


def line(node: ExaminedNode, path: str) -> str:
    """Return the line of a driver's file, "" if it is missing or the driver refuses to read it."""
    try:
        return node_tree.line(node.tree, path)
    except OSError:
        return ""


@fact
def silent_files(node: ExaminedNode) -> tuple[str, ...]:
    """Return the files of the driver that do not answer; their readers block in the kernel."""
    paths = [f"{gpu.directory}/{name}" for gpu in gpus(node) for name in _LOCKED]
    paths += [f"{TOPOLOGY}/generation_id"]
    if _is_silent(node, paths[-1]):
        return tuple(paths[-1:])
    paths += [f"{NODES}/{number}/{name}" for number in node.tree.names(NODES) for name in _OF_KFD]
    return tuple(path for path in paths if _is_silent(node, path))


def _is_silent(node: ExaminedNode, path: str) -> bool:
    try:
        node.tree.read(path)
    except OSError as error:
        return error.errno == errno.ETIMEDOUT
    return False


def _render_minor(node: ExaminedNode, directory: str) -> int | None:
    for name in node.tree.names(f"{directory}/drm"):
        number = name.removeprefix(_RENDER)
        if name.startswith(_RENDER) and number.isdecimal():
            return int(number)
    return None


@fact
def drm_minors(node: ExaminedNode) -> frozenset[int]:
    """Return the minors of the render nodes that amdgpu has made, also those of no partition."""
    places = [
        f"{PLATFORM}/{name}" for name in node.tree.names(PLATFORM) if name.startswith(_PARTITION)
    ]
    found = [gpu.minor for gpu in gpus(node)] + [_render_minor(node, one) for one in places]
    return frozenset(minor for minor in found if minor is not None)


@fact
def topology(node: ExaminedNode) -> KfdDevices:
    """Return KFD's topology."""
    found, refused = [], []
    for number in node.tree.names(NODES):
        path = f"{NODES}/{number}/properties"
        try:
            gpu_id = node_tree.line(node.tree, f"{NODES}/{number}/gpu_id")
            values = numbers(node_tree.text(node.tree, path) or "")
        except PermissionError:
            refused.append(path)
            continue
        if values.get("simd_count"):
            found.append(_kfd_node(number, gpu_id, values))
    return KfdDevices(tuple(found), tuple(refused))


def numbers(text: str) -> dict[str, int]:
    """Return the values of a file of KFD with one "key number" in each line."""
    pairs = (one.split() for one in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _kfd_node(number: str, gpu_id: str, values: dict[str, int]) -> KfdDevice:
    place = values.get("location_id", 0)
    bus = f"{values.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}"
    minor = values.get("drm_render_minor", 0)
    hive = values.get("hive_id", 0)
    return KfdDevice(number, int(gpu_id) if gpu_id.isdecimal() else 0, minor, bus, hive)


def device_minors(node: ExaminedNode) -> frozenset[int]:
    """Return the minors of the render nodes of the GPUs and partitions that containers can get."""
    return frozenset(one.minor for one in topology(node).nodes) & drm_minors(node)


def device_ids(node: ExaminedNode) -> set[str]:
    """Return the ids of the kubelet's devices: PCI addresses, and names of partitions."""
    partitions = [
        name.replace(".", "_")
        for name in node.tree.names(PLATFORM)
        if name.startswith(_PARTITION)
        and _render_minor(node, f"{PLATFORM}/{name}") in device_minors(node)
    ]
    return {*(gpu.bus_id for gpu in gpus(node) if gpu.minor in device_minors(node)), *partitions}


def render_path(minor: int) -> str:
    """Return the path of a render node."""
    return f"{DRI}/{_RENDER}{minor}"


def kfd_major(node: ExaminedNode) -> int | None:
    """Return the major that the kernel assigned to KFD, None if there is none."""
    for entry in (node_tree.text(node.tree, DEVICES) or "").splitlines():
        words = entry.split()
        if words[1:] == ["kfd"] and words[0].isdecimal():
            return int(words[0])
    return None


@fact
def spec_files(node: ExaminedNode) -> tuple[SpecFile, ...]:
    """Return the CDI specs of AMD GPUs, lowest priority first; also invalid ones."""
    found = []
    for path in cdi_specs.paths(node):
        read = cdi_specs.read_spec(node, path)
        if read is None:
            continue
        one, content = read
        if one.kind == amd_words.KIND or (
            one.document is None and amd_words.KIND.encode() in content
        ):
            found.append(one)
    return tuple(found)


def valid_specs(node: ExaminedNode) -> list[SpecFile]:
    """Return the valid CDI specs that no other one hides, lowest priority first."""
    valid = [one for one in spec_files(node) if one.document is not None]
    return [one for one in valid if not cdi_specs.is_hidden_by(node, one, valid)]


def annotation(one: SpecFile, key: str) -> str:
    """Return an annotation of a spec, "" if it has none of that key."""
    found: Any = (one.document or {}).get("annotations") or {}
    return str(found.get(key, "")) if isinstance(found, dict) else ""
