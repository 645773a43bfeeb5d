# SPDX-License-Identifier: Apache-2.0
"""KFD's topology of a simulated node with AMD GPUs; amd_tree.py builds the rest of the node."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from gpuhook.vendors.amd.inventory.amd_inventory import OTHER, PCIE, XGMI
from tests.simulated.sysfs_files import link, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.vendors.amd.inventory.amd_inventory import AmdDevice, AmdGpu
    from tests.simulated.amd_tree import AmdTree

# Reading it fails with EACCES, for root as well: it is a switch that can only be written.
UNREADABLE = "/proc/sys/vm/compact_memory"
LINK_TYPES = {XGMI: 11, PCIE: 2, OTHER: 1}
_OLD = ("domain", "gfx_target_version", "hive_id", "num_xcc", "unique_id")


@dataclass(frozen=True)
class Oddities:
    """What differs from a usual node. GPUs are named by their PCI address."""

    is_dotted: bool = False  # platform devices are "amdgpu_xcp.3"
    is_old: bool = False  # a kernel of the Vega era
    is_denied: bool = False  # reading KFD's files of GPUs fails for lack of permission
    has_kfd: bool = True
    has_dead_partitions: bool = True  # DRM devices of partitions that the mode does not use
    bmc_card: int | None = None  # the minor of the graphics of a management controller
    without_drm: frozenset[str] = frozenset()
    without_kfd: frozenset[str] = frozenset()
    used_memory: Mapping[str, int] = field(default_factory=dict)  # bytes by GPU
    # (uncorrectable, correctable) ones by GPU and block
    errors: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)


USUAL = Oddities()


def node_directory(topology: Path, render_minor: int) -> Path:
    """Return the directory of the node with this render node."""
    for place in topology.glob("nodes/*"):
        properties = (place / "properties").read_text("ascii").splitlines()
        if f"drm_render_minor {render_minor}" in properties:
            return place
    raise LookupError(render_minor)


def write_topology(tree: AmdTree, odd: Oddities) -> None:
    """Write KFD's directory: a CPU node for each NUMA node, then a node for each device."""
    topology = tree.kfd / "topology"
    (tree.kfd / "proc").mkdir(parents=True)
    link(tree.root / "sys/class/kfd/kfd", tree.kfd)
    found = re.search(r"generation=(\d+)", tree.node.token)
    write(topology / "generation_id", found[1] if found else 1)
    write(topology / "system_properties", "platform_oem 0\nplatform_id 0\nplatform_rev 0")
    cpus = 1 + max((gpu.numa_node or 0 for gpu in tree.node.gpus), default=0)
    for number in range(cpus):
        _write_cpu(topology / f"nodes/{number}")
    numbers = {one.render_minor: cpus + place for place, (_, one) in enumerate(tree.node.devices())}
    for gpu in tree.node.gpus:
        for device in gpu.devices:
            if device.id not in odd.without_kfd:
                _write_node(topology, numbers, gpu, device, odd)


def _write_cpu(place: Path) -> None:
    write(place / "gpu_id", 0)
    write(place / "name", "")
    facts = {"cpu_cores_count": 96, "simd_count": 0, "mem_banks_count": 1, "drm_render_minor": 0}
    write(place / "properties", _lines(facts))
    write(place / "mem_banks/0/properties", _lines({"heap_type": 0, "size_in_bytes": 1 << 40}))


def _write_node(
    topology: Path, numbers: dict[int, int], gpu: AmdGpu, device: AmdDevice, odd: Oddities
) -> None:
    number = numbers[device.render_minor]
    place = topology / f"nodes/{number}"
    files = {"gpu_id": str(device.kfd_id or 0), "name": "ip discovery"}
    files["properties"] = _lines(_properties(gpu, device, odd))
    for name, content in files.items():
        if odd.is_denied:
            place.mkdir(parents=True, exist_ok=True)
            (place / name).symlink_to(UNREADABLE)
        else:
            write(place / name, content)
    if device.memory_bytes is not None:
        bank = {"heap_type": 1, "size_in_bytes": device.memory_bytes, "flags": 0, "width": 8192}
        write(place / "mem_banks/0/properties", _lines(bank))
        used = odd.used_memory.get(gpu.pci_address, 0) // len(gpu.devices)
        write(place / "mem_banks/0/used_memory", used)
    _write_links(place, number, numbers, gpu, device, odd)


def _properties(gpu: AmdGpu, device: AmdDevice, odd: Oddities) -> dict[str, int]:
    domain, bus, rest = gpu.pci_address.split(":")
    slot = int(rest.partition(".")[0], 16)
    simds, units = device.simd_count or 0, device.cu_count or 0
    found = {
        "cpu_cores_count": 0,
        "simd_count": simds,
        "mem_banks_count": int(device.memory_bytes is not None),
        "io_links_count": 1 + len([one for one in device.links if one.type == XGMI]),
        "lds_size_in_kb": 64,
        "wave_front_size": 64,
        "simd_per_cu": simds // units if units else 0,
        "gfx_target_version": _target_version(device.gfx),
        "vendor_id": 4098,
        "device_id": int(gpu.device_id or "0", 16),
        "location_id": int(bus, 16) << 8 | slot << 3 | device.partition,
        "domain": int(domain, 16),
        "drm_render_minor": device.render_minor,
        "hive_id": gpu.hive_id or 0,
        "max_engine_clk_fcompute": 2100,
        "local_mem_size": 0,
        "fw_version": 177,
        "sdma_fw_version": 22,
        "unique_id": int(gpu.unique_id or "0", 16),
        "num_xcc": device.xcc_count or 0,
        "array_count": 2 * (device.engine_count or 0),
        "simd_arrays_per_engine": 2 if device.engine_count else 0,
    }
    return {name: value for name, value in found.items() if not (odd.is_old and name in _OLD)}


def _target_version(gfx: str | None) -> int:
    if gfx is None:
        return 0
    digits = gfx.removeprefix("gfx")
    return int(digits[:-2]) * 10000 + int(digits[-2]) * 100 + int(digits[-1], 16)


def _write_links(
    place: Path, number: int, numbers: dict[int, int], gpu: AmdGpu, device: AmdDevice, odd: Oddities
) -> None:
    """Write the links to the CPU and to XGMI neighbours as direct ones, others as peer links."""
    cpu = {"type": 2, "node_from": number, "node_to": gpu.numa_node or 0, "weight": 20}
    direct, peers = [cpu], list[dict[str, int]]()
    for one in device.links:
        facts = {"type": LINK_TYPES[one.type], "node_from": number}
        facts["node_to"] = numbers[one.render_minor]
        if one.weight is not None:
            facts["weight"] = one.weight
        (direct if one.type == XGMI else peers).append(facts)
    kinds = {"io_links": direct, "p2p_links": [] if odd.is_old else peers}
    for kind, links in kinds.items():
        for index, link_facts in enumerate(links):
            write(place / f"{kind}/{index}/properties", _lines(link_facts))


def _lines(facts: dict[str, int]) -> str:
    return "\n".join(f"{name} {value}" for name, value in facts.items())
