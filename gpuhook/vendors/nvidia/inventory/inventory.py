# SPDX-License-Identifier: Apache-2.0
"""What a node has, as facts: its driver, its GPUs, its device nodes and the driver's files.

Everything is frozen. None means that the GPU, the library or the kernel could not tell; people
see it as 'unknown'.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field

VDPAU_PLUGIN = "libvdpau_nvidia.so."  # and a version


@dataclass(frozen=True, slots=True)
class Driver:
    """The NVIDIA driver of a node."""

    version: str | None = None  # "580.95.05", from NVML, the kernel module or libcuda's file name
    module_version: str | None = None  # of the loaded kernel module; None: not loaded
    cuda: str | None = None  # highest CUDA version, "13.0"
    nvml: str | None = None  # host path of the libnvidia-ml.so.1 that answered


@dataclass(frozen=True, slots=True)
class MigInstance:
    """One MIG device: a compute instance in a GPU instance, with its share of the GPU.

    `trouble` is the reason why it cannot be given to a container, or None. The capability nodes
    /dev/nvidia-caps/nvidia-cap<minor> open it; their minors are in mig-minors of /proc.
    """

    index: int  # among the MIG devices of its GPU: the 1 of "0:1"
    uuid: str  # "MIG-..."
    gpu_instance: int
    compute_instance: int
    profile: str | None = None  # "1g.5gb", "1g.5gb+me", "1c.3g.20gb"
    memory_bytes: int | None = None
    gpu_slices: int | None = None
    compute_slices: int | None = None
    multiprocessors: int | None = None
    copy_engines: int | None = None
    decoders: int | None = None
    encoders: int | None = None
    jpegs: int | None = None
    ofas: int | None = None
    has_graphics: bool | None = None
    gpu_instance_minor: int | None = None  # of its access capability
    compute_instance_minor: int | None = None
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU. `lost` is the reason why it cannot be used, or None."""

    index: int
    uuid: str | None = None  # "GPU-..."
    minor: int | None = None  # of /dev/nvidia<minor>; not always the index
    pci_bus_id: str | None = None  # "00000000:00:1E.0", NVML's form
    name: str | None = None
    brand: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None  # "7.5"
    memory_bytes: int | None = None
    numa_node: int | None = None
    mig_mode: str | None = None  # "enabled", "disabled", "unsupported"
    compute_mode: str | None = None  # "default", "exclusive-process", ...: who else may use it
    time_slice: str | None = None  # "default", "short", ...; only `gpuhook inventory` asks
    coherent: bool | None = None  # whether it addresses the host's memory coherently (ATS)
    lost: str | None = None
    instances: tuple[MigInstance, ...] = ()  # of a GPU in MIG mode, by index
    drm: tuple[str, ...] = ()  # what the kernel calls its nodes in /dev/dri: "card1", "renderD128"

    @property
    def loss(self) -> str:
        """The warning that a node with this GPU carries if it is lost, else ""."""
        return f"GPU {self.index} is lost: {self.lost}" if self.lost else ""


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A character device node: `path` as containers see it, `host_path` below the dev root."""

    path: str
    host_path: str
    major: int
    minor: int
    mode: int = 0o666  # permission bits
    uid: int = 0
    gid: int = 0

    @classmethod
    def of_status(cls, path: str, host_path: str, status: os.stat_result) -> DeviceNode:
        """Return the node at `host_path`, as its status says it is."""
        return cls(
            path,
            host_path,
            os.major(status.st_rdev),
            os.minor(status.st_rdev),
            stat.S_IMODE(status.st_mode),
            status.st_uid,
            status.st_gid,
        )


@dataclass(frozen=True, slots=True)
class DriverFile:
    """A file of the driver: where it is on the host, and where a container finds it.

    `kind` is one of "library", "plugin" (a library outside the loader's directories: vdpau, gbm,
    X.Org), "binary", "firmware", "socket", "config", "pipes" (the directory of an MPS daemon's),
    "directory" (one that this site adds). `capabilities` are those of which any one needs the file,
    where the site says so; else its name tells.
    """

    kind: str
    host_path: str  # as opened on the host, symbolic links resolved
    container_path: str
    soname: str | None = None  # DT_SONAME of a library or plugin
    capabilities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link that a container needs: `path` (in the container) to `target`."""

    path: str
    target: str


@dataclass(frozen=True, slots=True)
class Node:
    """A whole node. `majors` maps names of /proc/devices ("nvidia", "nvidia-uvm") to numbers.

    `files_trouble` is the reason why `files`, `links` and `library_dirs` are empty, or "".
    """

    driver: Driver
    gpus: tuple[Gpu, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    files: tuple[DriverFile, ...] = ()
    links: tuple[Link, ...] = ()
    library_dirs: tuple[str, ...] = ()  # container directories for the loader, in order
    majors: dict[str, int] = field(default_factory=dict)
    driver_root: str = "/"
    dev_root: str = "/"
    masks_params: bool = False  # the host's params file says ModifyDeviceFiles: 1
    fingerprint: str = ""
    files_trouble: str = ""
    warnings: tuple[str, ...] = ()
