# SPDX-License-Identifier: Apache-2.0
"""The facts of a node with AMD GPUs: its driver, its GPUs and their partitions.

All classes are frozen. None means that the kernel does not report the fact. Sources: the amdgpu
driver's files in /sys/module/amdgpu and in the directory of each PCI device, and KFD's topology in
/sys/class/kfd/kfd/topology, joined by the minor of the render node.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.vendors.amd.hot import amd_sysfs
from gpuhook.vendors.amd.hot.amd_words import DRM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

XGMI, PCIE, OTHER = "xgmi", "pcie", "other"  # the types of links


@dataclass(frozen=True, slots=True)
class AmdDriver:
    """The amdgpu driver. `version` and `srcversion` exist for a driver from AMD's packages."""

    version: str | None = None
    srcversion: str | None = None
    kernel: str | None = None  # the release of the kernel, "6.8.0-136-generic"


@dataclass(frozen=True, slots=True)
class AmdLink:
    """A link to another device of this node, from io_links and p2p_links of KFD."""

    render_minor: int  # of the other device
    type: str  # XGMI, PCIE or OTHER
    weight: int | None = None  # KFD's


@dataclass(frozen=True, slots=True)
class AmdDevice:
    """What a container can get: a GPU, or one of its partitions.

    `id` is the device id of AMD's device plugin: the PCI address of the GPU for the GPU itself and
    for its first partition, and the name of the platform device ("amdgpu_xcp_3") for the others.
    """

    index: int  # on the node, in the order of PCI addresses and render minors
    id: str
    partition: int  # in its GPU, from 0; a GPU without partitions is its partition 0
    render_minor: int  # of /dev/dri/renderD<minor>
    card_minor: int | None = None  # of /dev/dri/card<minor>
    kfd_id: int | None = None  # gpu_id of KFD, which the files of its processes have in their names
    gfx: str | None = None  # "gfx942"
    memory_bytes: int | None = None
    simd_count: int | None = None
    cu_count: int | None = None
    xcc_count: int | None = None
    links: tuple[AmdLink, ...] = ()
    engine_count: int | None = None  # shader engines, of which CUs are parts

    @property
    def render_path(self) -> str:
        """The device node that grants the device: KFD checks it in the device cgroup."""
        return f"{DRM}renderD{self.render_minor}"

    @property
    def card_path(self) -> str | None:
        """The device node for display."""
        return None if self.card_minor is None else f"{DRM}card{self.card_minor}"


@dataclass(frozen=True, slots=True)
class AmdGpu:
    """One physical GPU; `devices` are its partitions, or the GPU itself, and () if it is lost."""

    index: int  # among the GPUs of the node, in the order of PCI addresses
    pci_address: str  # "0000:05:00.0"
    unique_id: str | None = None  # 16 hex digits in lower case; None if it is 0 or not unique
    name: str | None = None  # "AMD Instinct MI300X OAM"
    device_id: str | None = None  # PCI device id, "74a1"
    subsystem_id: str | None = None  # "1002:74a1"
    revision: str | None = None  # "00"
    serial: str | None = None
    vbios: str | None = None
    family: str | None = None  # "AI", AMD's node labeller's name
    vram_bytes: int | None = None
    numa_node: int | None = None
    hive_id: int | None = None  # of its XGMI hive
    compute_mode: str | None = None  # "SPX", "CPX"; None for a GPU that cannot be partitioned
    memory_mode: str | None = None  # "NPS1"
    compute_modes: tuple[str, ...] = ()  # the available ones
    memory_modes: tuple[str, ...] = ()
    devices: tuple[AmdDevice, ...] = ()
    trouble: str | None = None  # why no container can get it

    @property
    def uuid(self) -> str | None:
        """The id of the whole GPU in ROCm's form, "GPU-08da82c12ef81b5d"."""
        return None if self.unique_id is None else f"GPU-{self.unique_id}"

    @property
    def is_partitioned(self) -> bool:
        """Whether the GPU has several partitions that can be used."""
        return len(self.devices) > 1

    @property
    def is_divided(self) -> bool:
        """Whether its mode gives it several partitions, of which the kernel may show fewer."""
        return amd_sysfs.is_divided(self.compute_mode)


@dataclass(frozen=True, slots=True)
class AmdDeviceNode:
    """A device node as the host has it; containers see it at the same path."""

    path: str
    major: int
    minor: int
    mode: int = 0o660  # permission bits
    uid: int = 0
    gid: int = 0

    @property
    def host_path(self) -> str:
        """The path on the host."""
        return self.path


@dataclass(frozen=True, slots=True)
class AmdNode:
    """The AMD part of a node. `driver` None: no amdgpu driver is loaded.

    `token` changes with the devices of the node (amd_token.py). `device_nodes` are /dev/kfd and the
    DRM nodes of the devices, as far as they exist.
    """

    driver: AmdDriver | None = None
    gpus: tuple[AmdGpu, ...] = ()
    device_nodes: tuple[AmdDeviceNode, ...] = ()
    token: str = ""
    warnings: tuple[str, ...] = ()

    def devices(self) -> Iterator[tuple[AmdGpu, AmdDevice]]:
        """Return each device with its GPU, in the order of their indices."""
        for gpu in self.gpus:
            for device in gpu.devices:
                yield gpu, device
