# SPDX-License-Identifier: Apache-2.0
"""Nodes with AMD GPUs as they exist: their buses, minors, modes, sizes and links.

Sources: the topologies in AMD's test data (MI308X, MI210, MI300X in CPX), and the listings of two
real machines (MI300A, MI355X).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuhook.vendors.amd.inventory.amd_inventory import PCIE, XGMI, AmdDevice, AmdLink
from tests.simulated import amd_profiles
from tests.simulated.amd_profiles import GIB, finished, gpu_of, linked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.vendors.amd.inventory.amd_inventory import AmdGpu, AmdNode


@dataclass(frozen=True)
class _Model:
    """A kind of GPU; sizes are those of the whole GPU."""

    name: str
    device_id: str
    gfx: str
    memory_bytes: int
    simds: int
    xccs: int
    modes: tuple[str, ...] = ()
    memory_modes: tuple[str, ...] = ()


_MI308X = _Model(
    "AMD Instinct MI308X OAM", "74a2", "gfx942", 192 * GIB, 320, 4, ("SPX", "DPX", "CPX"),
    ("NPS1", "NPS4"),
)  # fmt: skip
_MI300A = _Model(
    "AMD Instinct MI300A", "74a0", "gfx942", 128 * GIB, 912, 6, ("SPX", "TPX", "CPX"), ("NPS1",)
)
_MI355X = _Model(
    "AMD Instinct MI355X", "75a3", "gfx950", 288 * GIB, 1024, 8, ("SPX", "DPX", "QPX", "CPX"),
    ("NPS1", "NPS2"),
)  # fmt: skip
_MI210 = _Model("AMD Instinct MI210", "740f", "gfx90a", 64 * GIB, 416, 1)
_CARDS_BEFORE_RENDERS = 127


def mi308x8_quarters() -> AmdNode:
    """Return eight MI308X with four partitions each, on two PCI domains; the last is smaller."""
    buses = ("0000:0a", "0000:80", "0000:a4", "0000:c8", "0001:0b", "0001:81", "0001:a5", "0001:c9")
    places = [(f"{bus}:00.0", 128 + 8 * row, int(bus[3])) for row, bus in enumerate(buses)]
    gpus = linked(_gpus(_MI308X, places, "CPX", 4), inside=13, across=41)
    smaller = [
        replace(
            gpu,
            devices=tuple(
                replace(one, memory_bytes=48 * GIB - (16 << 20 if one.partition == 3 else 0))
                for one in gpu.devices
            ),
        )
        for gpu in gpus
    ]
    return finished(smaller, generation=33)


def mi300x_cpx_63() -> AmdNode:
    """Return eight MI300X in CPX; a management controller has the DRM node of the last partition.

    The minors after it do not exist, so the last partition has no DRM device, and KFD no node.
    """
    whole = amd_profiles.mi300x_cpx()
    last = whole.gpus[-1]
    gone = last.devices[-1].render_minor
    gpus = [*whole.gpus[:-1], replace(last, devices=last.devices[:-1])]
    return finished([_without_links_to(gpu, gone) for gpu in gpus], generation=80)


def mi210_two_hives() -> AmdNode:
    """Return eight MI210: two hives of four by XGMI, and PCIe between the hives."""
    buses = ("63", "43", "03", "26", "e3", "c3", "83", "a3")  # by render node, from 128
    places = [(f"0000:{bus}:00.0", 128 + row, int(row > 3)) for row, bus in enumerate(buses)]
    gpus = _gpus(_MI210, places, None, 1)
    hives = {gpu.index: 0x1111 * (1 + (gpu.devices[0].render_minor > 131)) for gpu in gpus}
    gpus = [replace(gpu, hive_id=hives[gpu.index]) for gpu in gpus]
    return finished([_with_links(gpu, gpus) for gpu in gpus], generation=10)


def mi300a_x4() -> AmdNode:
    """Return four MI300A in SPX: the same bus in four PCI domains, dead partitions between."""
    places = [(f"000{row}:02:00.0", 128 + 8 * row, row) for row in range(4)]
    gpus = linked(_gpus(_MI300A, places, "SPX", 1, cards=-128), across=15)
    return finished(gpus, generation=8)


def mi355x8() -> AmdNode:
    """Return eight MI355X in SPX and NPS1; the order of buses is not that of render nodes."""
    rows = ("75", "05", "65", "15", "f5", "85", "e5", "95")
    numa = (0, 1, 3, 2, 4, 5, 7, 6)
    places = [(f"0000:{bus}:00.0", 128 + 8 * row, numa[row]) for row, bus in enumerate(rows)]
    gpus = linked(_gpus(_MI355X, places, "SPX", 1), across=15)
    first = replace(gpus[5], unique_id="08da82c12ef81b5d")
    return finished([*gpus[:5], first, *gpus[6:]], generation=10)


MACHINES = {
    "mi308x8-quarters": mi308x8_quarters,
    "mi300x-cpx-63": mi300x_cpx_63,
    "mi210-two-hives": mi210_two_hives,
    "mi300a-x4": mi300a_x4,
    "mi355x8": mi355x8,
}


def _gpus(
    model: _Model,
    places: Sequence[tuple[str, int, int]],
    mode: str | None,
    parts: int,
    cards: int = -_CARDS_BEFORE_RENDERS,
) -> list[AmdGpu]:
    """Return GPUs at (address, first render minor, NUMA node), in the order of addresses.

    `cards` is added to the minor of a render node for that of the card. Partitions' platform
    devices are numbered in the order of render nodes.
    """
    gpus: list[AmdGpu] = []
    ranks = {place: rank for rank, place in enumerate(sorted(places, key=lambda one: one[1]))}
    for index, place in enumerate(sorted(places)):
        address, minor, numa = place
        devices = tuple(
            AmdDevice(
                index=index * parts + part,
                id=address if part == 0 else f"amdgpu_xcp_{ranks[place] * 7 + part - 1}",
                partition=part,
                render_minor=minor + part,
                card_minor=minor + part + cards,
                kfd_id=2000 + 613 * (minor + part - 127),
                gfx=model.gfx,
                memory_bytes=model.memory_bytes // parts,
                simd_count=model.simds // parts,
                cu_count=model.simds // 4 // parts,
                xcc_count=model.xccs // parts,
            )
            for part in range(parts)
        )
        gpu = gpu_of(index, address, model.device_id, model.name, model.memory_bytes, numa)
        gpus.append(
            replace(
                gpu,
                devices=devices,
                family="AI",
                hive_id=0x7C3A5511 if model.modes else None,
                compute_mode=mode,
                memory_mode="NPS1" if mode else None,
                compute_modes=model.modes,
                memory_modes=model.memory_modes,
            )
        )
    return gpus


def _with_links(gpu: AmdGpu, gpus: Sequence[AmdGpu]) -> AmdGpu:
    """Return the GPU with XGMI links inside its hive, and PCIe links to the others."""
    (own,) = gpu.devices
    others = sorted(
        (other.devices[0].render_minor, other.hive_id == gpu.hive_id)
        for other in gpus
        if other is not gpu
    )
    links = tuple(
        AmdLink(minor, XGMI, 15) if is_near else AmdLink(minor, PCIE, 72)
        for minor, is_near in others
    )
    return replace(gpu, devices=(replace(own, links=links),))


def _without_links_to(gpu: AmdGpu, minor: int) -> AmdGpu:
    devices = (
        replace(one, links=tuple(link for link in one.links if link.render_minor != minor))
        for one in gpu.devices
    )
    return replace(gpu, devices=tuple(devices))
