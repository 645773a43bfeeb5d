# SPDX-License-Identifier: Apache-2.0
"""The facts of a node: its driver, its GPUs, its device nodes and the driver's files.

All classes are frozen. None means that the GPU, the library or the kernel does not report the
fact; people see it as 'unknown'. How NVML reports a fact and what its values look like is with the
field (`fact`): the dump, its JSON schema and the tests' NVML stub follow from that.
"""

from __future__ import annotations

import os
import stat
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from gpuhook.vendors.nvidia.warm import nvml_constants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

VDPAU_PLUGIN = "libvdpau_nvidia.so."  # and a version
_VERSION = r"^(unknown|[0-9]+(\.[0-9]+)+)$"


@dataclass(frozen=True, slots=True)
class FactRule:
    """How one fact is read and dumped."""

    nvml: str = ""  # the NVML function that returns the fact as one number or text
    words: Mapping[int | None, str] | None = None  # the texts of NVML's numbers
    values: tuple[str, ...] = ()  # all texts, where words does not list them
    pattern: str = ""  # regular expression of the text, or of each text of a tuple
    is_optional: bool = False  # a dump leaves the fact out if it is None


def fact(*, default: Any = None, **rule: Any) -> Any:
    """Return a dataclass field with its FactRule; `default` MISSING makes the field required."""
    return field(default=default, metadata={"rule": FactRule(**rule)})


def fact_rules(kind: type[Any]) -> dict[str, FactRule]:
    """Return the FactRule of each field of a class of this module."""
    return {one.name: one.metadata.get("rule") or FactRule() for one in fields(kind)}


@dataclass(frozen=True, slots=True)
class Driver:
    """The NVIDIA driver of a node."""

    # "580.95.05", from NVML, the kernel module or libcuda's file name
    version: str | None = fact(pattern=_VERSION)
    module_version: str | None = fact(pattern=_VERSION)  # None: no kernel module is loaded
    cuda: str | None = fact(pattern=_VERSION)  # highest CUDA version, "13.0"
    nvml: str | None = None  # host path of the libnvidia-ml.so.1 that answered


@dataclass(frozen=True, slots=True)
class MigInstance:
    """One MIG device: a compute instance in a GPU instance, with its share of the GPU.

    The capability nodes /dev/nvidia-caps/nvidia-cap<minor> open it; mig-minors of /proc lists
    their minors.
    """

    index: int  # among the MIG devices of its GPU: the 1 of "0:1"
    uuid: str = fact(default=MISSING, pattern=r"^MIG-[0-9A-Za-z/-]+$")
    gpu_instance: int = fact(default=MISSING)
    compute_instance: int = fact(default=MISSING)
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
    profile_id: int | None = fact(is_optional=True)  # NVML's id of the GPU instance's profile
    # The memory slices of the GPU that the GPU instance has: the first one, and their number.
    memory_start: int | None = fact(is_optional=True)
    memory_slices: int | None = fact(is_optional=True)
    trouble: str | None = fact(is_optional=True)  # why no container can get it


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU."""

    index: int
    uuid: str | None = fact(nvml="nvmlDeviceGetUUID", pattern=r"^(unknown|GPU-[0-9A-Za-z-]+)$")
    # Of /dev/nvidia<minor>; not always the index.
    minor: int | None = fact(nvml="nvmlDeviceGetMinorNumber")
    # NVML's form, "00000000:00:1E.0".
    pci_bus_id: str | None = fact(pattern=r"^(unknown|[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-7])$")
    name: str | None = fact(nvml="nvmlDeviceGetName")
    brand: str | None = fact(nvml="nvmlDeviceGetBrand", words=nvml_constants.BRANDS)
    architecture: str | None = fact(
        nvml="nvmlDeviceGetArchitecture", words=nvml_constants.ARCHITECTURES
    )
    compute_capability: str | None = fact(pattern=_VERSION)  # "7.5"
    memory_bytes: int | None = None
    numa_node: int | None = None
    mig_mode: str | None = fact(values=("enabled", "disabled", "unsupported"))
    # Which processes may use the GPU at the same time.
    compute_mode: str | None = fact(
        nvml="nvmlDeviceGetComputeMode", words=nvml_constants.COMPUTE_MODES, is_optional=True
    )
    # Whether the driver keeps the GPU initialised while no program uses it.
    persistence_mode: str | None = fact(
        nvml="nvmlDeviceGetPersistenceMode",
        words=nvml_constants.PERSISTENCE_MODES,
        is_optional=True,
    )
    # Only `gpuhook inventory` reads it.
    time_slice: str | None = fact(values=nvml_constants.TIME_SLICES, is_optional=True)
    # Whether the GPU addresses the host's memory coherently (ATS).
    coherent: bool | None = fact(is_optional=True)
    lost: str | None = fact(is_optional=True)  # why it cannot be used
    instances: tuple[MigInstance, ...] = ()  # of a GPU in MIG mode, by index
    # The kernel's names of its nodes in /dev/dri: "card1", "renderD128".
    drm: tuple[str, ...] = fact(default=(), pattern=r"^(card|renderD)[0-9]{1,7}$")

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
        """Return the node at `host_path` with the numbers, mode and owner in its status."""
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
    """A file of the driver: its path on the host, and in containers.

    `kind` is one of "library", "plugin" (a library outside the loader's directories: vdpau, gbm,
    X.Org), "binary", "firmware", "socket", "config", "pipes" (the directory of an MPS daemon's),
    "directory" (one that this site adds). Any one of `capabilities` needs the file; without them,
    its name implies them.
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
class DriverAnswer:
    """The facts that NVML, or /proc alone, reports.

    `mig_state` is the result of host_fingerprint.mig_state() from before the GPUs were read, so
    that the GPUs cannot be older.
    """

    driver: Driver
    gpus: tuple[Gpu, ...]
    mig_state: str
    warnings: tuple[str, ...] = ()


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
