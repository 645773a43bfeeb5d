# SPDX-License-Identifier: Apache-2.0
"""The AMD nodes among the profiles in gpuhook/vendors/profiles, and further ones for tests.

`python -m tests.simulated.profiles` writes the profiles. Buses, minors, sizes and links are those
of real nodes where the names say so (MI300X, MI308X, MI210, MI300A, MI355X).
"""

from __future__ import annotations

from dataclasses import replace

from gpuhook.vendors.amd.hot import amd_token
from gpuhook.vendors.amd.hot.amd_words import KFD
from gpuhook.vendors.amd.inventory.amd_inventory import (
    XGMI,
    AmdDevice,
    AmdDeviceNode,
    AmdDriver,
    AmdGpu,
    AmdLink,
    AmdNode,
)
from tests.simulated import amd_tree
from tests.simulated.amd_kfd_tree import Oddities

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

GIB = 1 << 30
RENDER_GROUP, VIDEO_GROUP = 109, 44
_DRIVER = AmdDriver("6.16.13", "A1B2C3D4E5F60718293A4B5", "6.8.0-79-generic")
BUSES = ("05", "27", "47", "65", "85", "a7", "c7", "e5")
_STRIDE = 8  # between the minors of two MI300X


def mi300x8() -> AmdNode:
    """Return a node with eight MI300X of one XGMI hive, each a whole GPU (SPX, NPS1)."""
    return finished(mi300x(BUSES, ["SPX"] * 8), generation=10)


def mi300x_cpx() -> AmdNode:
    """Return a node with eight MI300X in eight partitions each (CPX, NPS4): 64 devices."""
    gpus = mi300x(BUSES, ["CPX"] * 8, memory_mode="NPS4")
    return finished(gpus, generation=66)


def mixed_amd() -> AmdNode:
    """Return a node with GPUs of two vendors: a T4, and two MI210 that XGMI connects."""
    gpus = [
        gpu_of(index, f"0000:{bus}:00.0", "740f", "AMD Instinct MI210", 64 * GIB, 0)
        for index, bus in enumerate(("c3", "e3"))
    ]
    # The other vendor's GPUs have the DRM nodes before these.
    devices = [
        AmdDevice(
            index, gpu.pci_address, 0, 130 + index, 3 + index, 21000 + 77 * index, "gfx90a",
            64 * GIB - (16 << 20), 416, 104, 1, (AmdLink(131 - index, XGMI, 15),),
        )
        for index, gpu in enumerate(gpus)
    ]  # fmt: skip
    with_devices = [
        replace(gpu, devices=(device,), hive_id=0x2A17C0DE51, family="AI", numa_node=1)
        for gpu, device in zip(gpus, devices, strict=True)
    ]
    return finished(with_devices, generation=4)


def radeon() -> AmdNode:
    """Return a workstation: a Radeon RX 7900 XTX, a processor's GPU, a BMC's graphics as card0."""
    card = gpu_of(
        0,
        "0000:03:00.0",
        "744c",
        "AMD Radeon RX 7900 XTX",
        24560 << 20,
        None,
        revision="c8",
        subsystem="1da2:e471",
        is_board=False,
    )
    big = AmdDevice(
        0, card.pci_address, 0, 128, 1, 6577, "gfx1100", 24560 << 20, 192, 96, 1,
        engine_count=6,
    )  # fmt: skip
    apu = gpu_of(
        1,
        "0000:0e:00.0",
        "164e",
        "AMD Radeon Graphics",
        512 << 20,
        None,
        revision="c1",
        subsystem="1043:8877",
        is_board=False,
    )
    small = AmdDevice(1, apu.pci_address, 0, 129, 2, 49411, "gfx1036", 512 << 20, 4, 2, 1)
    gpus = [
        replace(card, devices=(big,), family="GC_11_0_0"),
        replace(apu, unique_id=None, vbios="102-RAPHAEL-008", devices=(small,)),
    ]
    return finished(gpus, generation=2, driver=AmdDriver(kernel="6.12.48+deb13-amd64"))


def mi300x(buses: Sequence[str], modes: Sequence[str], memory_mode: str = "NPS1") -> list[AmdGpu]:
    """Return MI300X of one hive, at these PCI buses and in these compute modes."""
    counts = {"SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8}
    gpus: list[AmdGpu] = []
    for place, (bus, mode) in enumerate(zip(buses, modes, strict=True)):
        gpu = gpu_of(
            place,
            f"0000:{bus}:00.0",
            "74a1",
            "AMD Instinct MI300X OAM",
            196592 << 20,
            place * 2 // 8,
        )
        parts = [
            _partition(gpu, place, number, counts[mode], first=sum(len(g.devices) for g in gpus))
            for number in range(counts[mode])
        ]
        gpus.append(
            replace(
                gpu,
                devices=tuple(parts),
                compute_mode=mode,
                memory_mode=memory_mode if mode == "CPX" else "NPS1",
                compute_modes=("SPX", "DPX", "QPX", "CPX"),
                memory_modes=("NPS1", "NPS4"),
                hive_id=0x6A5E3F1B00C4D2E7,
                family="AI",
            )
        )
    return linked(gpus)


def _partition(gpu: AmdGpu, place: int, number: int, count: int, first: int) -> AmdDevice:
    minor = place * _STRIDE + number
    return AmdDevice(
        index=first + number,
        id=gpu.pci_address if number == 0 else f"amdgpu_xcp_{place * 7 + number - 1}",
        partition=number,
        render_minor=128 + minor,
        card_minor=1 + minor,
        kfd_id=1000 + 7919 * (minor + 1) % 60000,
        gfx="gfx942",
        memory_bytes=(196592 << 20) // count,
        simd_count=1216 // count,
        cu_count=304 // count,
        xcc_count=8 // count,
    )


def linked(
    gpus: Sequence[AmdGpu], inside: int = 13, across: int = 15, kind: str = XGMI
) -> list[AmdGpu]:
    """Return the GPUs with links of each device to all others: inside a GPU, and across."""
    minors = sorted((one.render_minor, gpu.index) for gpu in gpus for one in gpu.devices)

    def links(gpu: AmdGpu, device: AmdDevice) -> tuple[AmdLink, ...]:
        return tuple(
            AmdLink(minor, kind, inside if owner == gpu.index else across)
            for minor, owner in minors
            if minor != device.render_minor
        )

    return [
        replace(gpu, devices=tuple(replace(one, links=links(gpu, one)) for one in gpu.devices))
        for gpu in gpus
    ]


def gpu_of(
    index: int,
    address: str,
    device_id: str,
    name: str | None,
    memory: int,
    numa: int | None,
    *,
    revision: str = "00",
    subsystem: str | None = None,
    is_board: bool = True,
) -> AmdGpu:
    """Return a GPU without devices; `is_board`: it knows its product name and serial number."""
    return AmdGpu(
        index=index,
        pci_address=address,
        unique_id=f"{0x08DA82C12EF81B5D ^ int(address[5:7], 16) << 40 ^ index * 0x9E3779B1:016x}",
        name=name,
        device_id=device_id,
        subsystem_id=subsystem or f"1002:{device_id}",
        revision=revision,
        serial=f"6922430004{index:02}" if is_board else None,
        vbios="113-M3000100-102" if is_board else "113-EXT97812-100",
        vram_bytes=memory,
        numa_node=numa,
    )


def finished(gpus: Sequence[AmdGpu], generation: int, driver: AmdDriver = _DRIVER) -> AmdNode:
    """Return the node with its device nodes and its token."""
    nodes = [AmdDeviceNode(KFD, 238, 0, 0o660, 0, RENDER_GROUP)]
    for gpu in gpus:
        for device in gpu.devices:
            if device.card_path is not None and device.card_minor is not None:
                nodes.append(
                    AmdDeviceNode(device.card_path, 226, device.card_minor, 0o660, 0, VIDEO_GROUP)
                )
            path = device.render_path
            nodes.append(AmdDeviceNode(path, 226, device.render_minor, 0o660, 0, RENDER_GROUP))
    node = AmdNode(driver, tuple(gpus), tuple(nodes), f"generation={generation}")
    with amd_tree.in_memory() as root:
        no_nodes = frozenset(device.id for _, device in node.devices())
        amd_tree.build(root, node, odd=Oddities(without_kfd=no_nodes))
        return replace(node, token=amd_token.token(root))


PROFILES = {"mi300x8": mi300x8, "mi300x-cpx": mi300x_cpx, "mixed": mixed_amd, "radeon": radeon}
