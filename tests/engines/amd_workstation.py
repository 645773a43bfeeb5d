# SPDX-License-Identifier: Apache-2.0
"""A booted node of documented_node.py that has AMD GPUs in place of its own."""

from __future__ import annotations

from pathlib import Path

from tests.engines.booted_node import GPUS, BootedNode
from tests.simulated import amd_tree

TREE = f"{GPUS}/amd"
# The files and device nodes of NVIDIA's driver go, and those that amdgpu shows come. An overlay on
# /sys hides the mounts below it.
CHANGE = f"""
set -e
umount /sys/module /sys/bus/pci/devices /proc/driver
rm -rf /dev/nvidia* /var/run/cdi/*
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


def become_amd(node: BootedNode, profile: str) -> None:
    """Give the node the AMD GPUs of a profile."""
    tree = amd_tree.build(Path(node.gpus.host_root) / "amd", profile)
    majors = "226 drm\n238 kfd\n"
    node.path("/run/majors").write_text(majors, encoding="ascii")
    nodes = "".join(
        f"mknod {one.path} c {one.major} {one.minor}\n" for one in tree.node.device_nodes
    )
    node.check("bash", "-c", CHANGE + nodes + RIGHTS)
