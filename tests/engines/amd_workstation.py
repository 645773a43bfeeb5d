# SPDX-License-Identifier: Apache-2.0
"""A booted node with the images of documented_node.py, and AMD GPUs in place of NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.engines.booted_node import GPUS, BootedNode, booted_node
from tests.engines.documented_node import add_images
from tests.simulated import amd_tree
from tests.simulated.amd_tree import DRM_MAJOR, KFD_MAJOR

TREE = f"{GPUS}/amd"
MAJORS = f"{DRM_MAJOR} drm\n{KFD_MAJOR} kfd\n"
# The files and device nodes of NVIDIA's driver go, and those that amdgpu shows come. An overlay on
# /sys hides the mounts below it.
CHANGE = f"""
set -e
umount /sys/module /sys/bus/pci/devices /proc/driver
rm -rf /dev/nvidia* /var/run/cdi/* /run/gpuhook/node.json
(cd {GPUS}/usr && find . ! -type d -print0) | (cd /usr && xargs -0 rm -f)
ldconfig
grep -v nvidia /run/devices >/run/others
sed '1r /run/majors' /run/others >/run/devices
mkdir /run/cgroups
mount --rbind /sys/fs/cgroup /run/cgroups
mount -t overlay sys -o lowerdir={TREE}/sys:/sys /sys
mount --rbind /run/cgroups /sys/fs/cgroup
getent group render || groupadd --system render
mkdir -p /dev/dri
"""
RIGHTS = """
chgrp render /dev/kfd /dev/dri/renderD*
chgrp video /dev/dri/card*
chmod 660 /dev/kfd /dev/dri/*
"""


@contextmanager
def amd_workstation(suite: str, place: Path, profile: str) -> Iterator[BootedNode]:
    """Yield a booted node with the AMD GPUs of a profile, below `place`, which is removed then."""
    with booted_node(suite, place, "t4") as node:
        add_images(node)
        tree = amd_tree.build(Path(node.gpus.host_root) / "amd", profile)
        node.path("/run/majors").write_text(MAJORS, encoding="ascii")
        nodes = "".join(
            f"mknod {one.path} c {one.major} {one.minor}\n" for one in tree.node.device_nodes
        )
        node.check("bash", "-c", CHANGE + nodes + RIGHTS)
        yield node
