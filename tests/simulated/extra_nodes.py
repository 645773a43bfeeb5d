# SPDX-License-Identifier: Apache-2.0
"""Extra devices of a simulated node: GPUDirect Storage, InfiniBand, GDRCopy, IMEX, MIG.

Numbers are invented, except those in the node's /proc/devices.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

IMEX_MAJOR, CAPS_MAJOR = 234, 506
NODES = {
    "/dev/nvidia-fs0": (505, 0, 0o666, 0),
    "/dev/nvidia-fs1": (505, 1, 0o666, 0),
    "/dev/infiniband/rdma_cm": (10, 122, 0o666, 0),
    "/dev/infiniband/uverbs0": (231, 192, 0o660, 109),
    "/dev/infiniband/umad0": (231, 0, 0o600, 0),
    "/dev/gdrdrv": (504, 0, 0o666, 0),
    "/dev/nvidia-nvswitchctl": (503, 255, 0o666, 0),
    "/dev/nvidia-nvswitch0": (503, 0, 0o666, 0),
    "/dev/nvidia-caps-imex-channels/channel0": (IMEX_MAJOR, 0, 0o666, 0),
    "/dev/nvidia-caps-imex-channels/channel3": (IMEX_MAJOR, 3, 0o666, 0),
    "/dev/nvidia-caps-imex-channels/channel12": (IMEX_MAJOR, 12, 0o666, 0),
    # From an earlier load of the driver, with another major.
    "/dev/nvidia-caps-imex-channels/channel7": (IMEX_MAJOR - 1, 7, 0o666, 0),
    "/dev/nvidia-caps/nvidia-cap1": (CAPS_MAJOR, 1, 0o400, 0),
    "/dev/nvidia-caps/nvidia-cap2": (CAPS_MAJOR, 2, 0o444, 0),
}
_FILES = {
    "/run/udev/data/b259:0": "S:disk/by-id/nvme-0\n",
    "/etc/cufile.json": "{}\n",
    "/proc/driver/nvidia/capabilities/mig/config": "DeviceFileMinor: 1\nDeviceFileMode: 256\n",
    "/proc/driver/nvidia/capabilities/mig/monitor": "DeviceFileMinor: 2\nDeviceFileMode: 292\n",
    "/proc/driver/nvidia-caps/mig-minors": "config 1\nmonitor 2\n",
}


def add(root: str | Path) -> None:
    """Make all nodes below `root`, which is the root of the host, the driver and /dev."""
    for path, text in _FILES.items():
        place = Path(f"{root}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            place.write_text(text, encoding="utf-8")
    for path in NODES:
        make(root, path)
    devices = Path(f"{root}/proc/devices")
    lines = devices.read_text("utf-8").splitlines() if devices.exists() else []
    majors = {"nvidia-caps-imex-channels": IMEX_MAJOR, "nvidia-caps": CAPS_MAJOR}
    others = [line for line in lines[1:] if line.split()[1:] not in [[name] for name in majors]]
    own = [f"{major} {name}" for name, major in majors.items()]
    devices.write_text("\n".join(["Character devices:", *own, *others, ""]), encoding="utf-8")


def make(root: str | Path, path: str) -> None:
    """Make one of NODES below `root`."""
    major, minor, mode, gid = NODES[path]
    place = Path(f"{root}{path}")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    os.mknod(place, stat.S_IFCHR, os.makedev(major, minor))
    os.chown(place, 0, gid)
    place.chmod(mode)
