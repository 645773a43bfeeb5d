# SPDX-License-Identifier: Apache-2.0
"""The allocation of one container, before it becomes a message of the kubelet's API.

The fields are those of ContainerAllocateResponse in the device plugin API v1beta1.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AllocatedMount:
    """A bind mount of the runtime, read-only by default."""

    container_path: str
    host_path: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A device node of the runtime; `permissions` has the letters "r", "w" and "m"."""

    container_path: str
    host_path: str
    permissions: str = "rw"


@dataclass(frozen=True, slots=True)
class Allocation:
    """The allocation. `cdi_devices` are qualified names, vendor/class=name."""

    envs: dict[str, str] = field(default_factory=dict)
    mounts: tuple[AllocatedMount, ...] = ()
    devices: tuple[DeviceSpec, ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()

    @property
    def has_files(self) -> bool:
        """Whether it mounts files of the host; a mount of /dev/null is a word to the runtime."""
        return any(mount.host_path != os.devnull for mount in self.mounts)
