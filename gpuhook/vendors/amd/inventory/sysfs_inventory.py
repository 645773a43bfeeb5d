# SPDX-License-Identifier: Apache-2.0
"""The inventory of a node with AMD GPUs, from sysfs and KFD: no library, no open device.

The devices are those of AMD's tools, in their order: the DRM devices whose render node is that of a
KFD node, by the PCI address of their GPU and the minor of the render node. The driver makes DRM
nodes for all partitions that a GPU can have; the other ones do nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuhook.vendors.amd.hot import amd_sysfs, amd_token
from gpuhook.vendors.amd.inventory import amd_doubts, drm_nodes, gfx, kfd_topology, sysfs_gpu
from gpuhook.vendors.amd.inventory.amd_inventory import (
    OTHER,
    PCIE,
    XGMI,
    AmdDevice,
    AmdDriver,
    AmdGpu,
    AmdLink,
    AmdNode,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.amd.inventory.drm_nodes import DrmDevice
    from gpuhook.vendors.amd.inventory.kfd_topology import KfdNode, KfdTopology

    _Links = tuple[AmdLink, ...]

_ATTEMPTS = 3
_LINK_TYPES = {2: PCIE, 11: XGMI}
_PARTITION_BITS = ((0, 0x7), (28, 0xF))  # of location_id, on current and on some older kernels
_CHANGED = "the AMD devices changed while they were read"
_NO_DRM = "it has no render node: the driver did not start it, or is not ready"
_NO_KFD = "the kernel has no KFD, which ROCm needs (/sys/class/kfd)"
_NOT_IN_KFD = "KFD does not list it: ROCm does not support it, or the driver did not start it"
_NO_PARENT = "{id}: its GPU is unknown, so it is left out"


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the kernel shows at one time."""

    topology: KfdTopology
    gpus: tuple[AmdGpu, ...]
    drm: dict[str, DrmDevice]  # by PCI address or id of the partition
    kfd: dict[int, KfdNode]  # by the minor of the render node


def read(host_root: str = "/", dev_root: str = "/") -> AmdNode:
    """Return the AMD part of the node whose /sys and /proc are below `host_root`.

    Device nodes are looked up in the /dev below `dev_root`. What cannot be read is a warning.
    """
    module = host_root.rstrip("/") + amd_sysfs.MODULE
    if not amd_sysfs.is_loaded(host_root):
        return AmdNode()
    # The token from before: a change meanwhile makes a spec stale, not wrong.
    token, (gpus, warnings) = amd_token.token(host_root), _read_gpus(host_root)
    for _ in range(_ATTEMPTS):
        after = amd_token.token(host_root)
        if after == token:
            break
        token, (gpus, warnings) = after, _read_gpus(host_root)
    else:
        warnings = [_CHANGED, *warnings]
    nodes, wrong_nodes = drm_nodes.find(host_root, dev_root, gpus)
    driver = AmdDriver(
        amd_sysfs.line(module + "/version"),
        amd_sysfs.line(module + "/srcversion"),
        amd_sysfs.line(host_root.rstrip("/") + "/proc/sys/kernel/osrelease"),
    )
    return AmdNode(driver, gpus, nodes, token, (*warnings, *wrong_nodes))


def _read_gpus(host_root: str) -> tuple[tuple[AmdGpu, ...], list[str]]:
    """Return the GPUs with their devices, and warnings."""
    topology = kfd_topology.read(host_root)
    facts = _Facts(
        topology,
        tuple(
            sysfs_gpu.read(host_root, address, index)
            for index, address in enumerate(amd_sysfs.gpu_addresses(host_root))
        ),
        {device.id: device for device in drm_nodes.devices(host_root)},
        # The first of two with the same render node.
        {node.render_minor: node for node in reversed(topology.nodes) if node.render_minor},
    )
    partitions, warnings = _partitions(facts)
    links = _links(facts.topology)
    gpus: list[AmdGpu] = []
    count = 0
    for gpu in facts.gpus:
        found = _with_devices(facts, gpu, partitions.get(gpu.pci_address, []), count, links)
        count += len(found.devices)
        gpus.append(found)
    minors = {device.render_minor for device in facts.drm.values()}
    doubts = amd_doubts.doubts(topology, minors, gpus)
    return amd_doubts.without_shared_ids(gpus), [*topology.warnings, *warnings, *doubts]


def _partitions(facts: _Facts) -> tuple[dict[str, list[DrmDevice]], list[str]]:
    """Return the partitions beyond the first by the PCI address of their GPU, and warnings."""
    found: dict[str, list[DrmDevice]] = {}
    warnings = []
    for device in facts.drm.values():
        node = facts.kfd.get(device.render_minor)
        if amd_sysfs.is_address(device.id) or node is None:
            continue
        parent = _parent(node, [gpu.pci_address for gpu in facts.gpus])
        if parent is None:
            warnings.append(_NO_PARENT.format(id=device.id))
        else:
            found.setdefault(parent, []).append(device)
    return found, warnings


def _parent(node: KfdNode, addresses: list[str]) -> str | None:
    """Return the address of the GPU with a node's domain, bus and device; None without one."""
    domain, *place = node.place
    wanted = "{:02x}:{:02x}".format(*place)
    same = [one for one in addresses if one.partition(":")[2][:5] == wanted]
    if domain is not None:
        same = [one for one in same if int(one.partition(":")[0], 16) == domain]
    return same[0] if len(same) == 1 else None


def _with_devices(
    facts: _Facts, gpu: AmdGpu, others: list[DrmDevice], first: int, links: dict[int, _Links]
) -> AmdGpu:
    """Return the GPU with its devices, whose indices start at `first`, or with its trouble."""
    own = facts.drm.get(gpu.pci_address)
    trouble = _trouble(facts, own)
    usable = [own] if own is not None and trouble is None else []
    usable = sorted([*usable, *others], key=lambda one: one.render_minor)
    if not usable:
        return replace(gpu, trouble=trouble)
    nodes = [facts.kfd.get(device.render_minor) for device in usable]
    devices = tuple(
        _device(first + place, number, device, node, links)
        for place, (number, device, node) in enumerate(zip(_numbers(nodes), usable, nodes))
    )
    hive = next((node.fact("hive_id") for node in nodes if node is not None), None)
    gpu = replace(gpu, devices=devices, hive_id=hive, family=gfx.family(devices[0].gfx))
    if len(devices) > 1:
        return gpu
    node, device = nodes[0], devices[0]
    # Where KFD is silent, the driver knows the memory of a GPU that is not divided.
    if device.memory_bytes is None and not gpu.is_divided:
        gpu = replace(gpu, devices=(replace(device, memory_bytes=gpu.vram_bytes),))
    known = None if node is None else sysfs_gpu.unique_id(node.properties.get("unique_id"))
    return replace(gpu, unique_id=gpu.unique_id or known)


def _trouble(facts: _Facts, own: DrmDevice | None) -> str | None:
    """Return why a GPU's own DRM device is not a device for containers, None if it is one."""
    if own is None:
        return _NO_DRM
    if own.render_minor in facts.kfd or facts.topology.denied:
        return None
    return _NOT_IN_KFD if facts.topology.is_present else _NO_KFD


def _device(
    index: int, partition: int, device: DrmDevice, node: KfdNode | None, links: dict[int, _Links]
) -> AmdDevice:
    if node is None:
        return AmdDevice(index, device.id, partition, device.render_minor, device.card_minor)
    simds, per_cu = node.fact("simd_count"), node.fact("simd_per_cu")
    arrays, per_engine = node.fact("array_count"), node.fact("simd_arrays_per_engine")
    return AmdDevice(
        index,
        device.id,
        partition,
        device.render_minor,
        device.card_minor,
        kfd_id=node.gpu_id,
        gfx=gfx.name(node.fact("gfx_target_version")),
        memory_bytes=node.memory_bytes,
        simd_count=simds,
        cu_count=simds // per_cu if simds and per_cu else None,
        xcc_count=node.fact("num_xcc"),
        links=links.get(device.render_minor, ()),
        engine_count=arrays // per_engine if arrays and per_engine else None,
    )


def _numbers(nodes: list[KfdNode | None]) -> list[int]:
    """Return the numbers of a GPU's partitions, which are in the order of their render nodes."""
    if len(nodes) == 1:
        return [0]
    locations = [0 if node is None else node.properties.get("location_id", 0) for node in nodes]
    for shift, mask in _PARTITION_BITS:
        numbers = [location >> shift & mask for location in locations]
        if len(set(numbers)) == len(numbers):
            return numbers
    return list(range(len(nodes)))


def _links(topology: KfdTopology) -> dict[int, _Links]:
    """Return the links of each device, by the minor of its render node; direct ones come first."""
    minors = {node.number: node.render_minor for node in topology.nodes if node.render_minor}
    found: dict[int, _Links] = {}
    for node in topology.nodes:
        own: dict[int, AmdLink] = {}
        for link in node.links:
            other = minors.get(link.target)
            if other is not None and other != node.render_minor:
                kind = _LINK_TYPES.get(link.type, OTHER)
                own.setdefault(other, AmdLink(other, kind, link.weight))
        if node.render_minor is not None:
            found.setdefault(node.render_minor, tuple(own[minor] for minor in sorted(own)))
    return found
