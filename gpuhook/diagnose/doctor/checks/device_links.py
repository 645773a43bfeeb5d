# SPDX-License-Identifier: Apache-2.0
"""What systemd needs to know of the device nodes, and the channels of IMEX."""

from __future__ import annotations

import os
import posixpath
from functools import partial

from gpuhook.diagnose.doctor import device_facts as devices
from gpuhook.diagnose.doctor import driver_facts as facts
from gpuhook.diagnose.doctor import services
from gpuhook.diagnose.doctor import spec_facts as specs
from gpuhook.diagnose.doctor.check import DEVICES, FAILED, WARNING, Check, Finding, Mend, absent, ok
from gpuhook.diagnose.node import tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.diagnose.doctor.check import Node
    from gpuhook.diagnose.node.tree import Status

_SYSTEMD = "/run/systemd/system"
_CHANNELS = "/dev/nvidia-caps-imex-channels"
_CHANNEL_MAJOR = "nvidia-caps-imex-channels"
_IMEX_NODES = "/etc/nvidia-imex/nodes_config.cfg"
# Where it is written that systemd makes the cgroups of containers. Docker and Podman do so by
# themselves where cgroups are of version 2.
_MARKS = (
    ("/var/lib/kubelet/config.yaml", "cgroupDriver: systemd"),
    ("/etc/containerd/config.toml", "SystemdCgroup = true"),
    ("/etc/docker/daemon.json", "native.cgroupdriver=systemd"),
)
_VERSION_2 = "/sys/fs/cgroup/cgroup.controllers"


def _links(node: Node) -> Iterable[Finding]:
    if node.tree.status(_SYSTEMD) is None:
        return [absent("this system is not run by systemd", _SYSTEMD)]
    why = _systemd_drives(node)
    if not why:
        return [absent("no engine has systemd make the cgroups of its containers", _SYSTEMD)]
    there = [(devices.place(node, one), devices.found(node, one)) for one in devices.every(node)]
    held = [(path, status) for path, status in there if status and status.is_character_device]
    wrong = [finding for path, status in held for finding in _link(node, path, status, why)]
    if wrong or not held:
        return wrong or [absent("there are no device nodes of the driver")]
    return [ok("/dev/char has a link to each device node of the driver", "/dev/char")]


def _systemd_drives(node: Node) -> str:
    """Return the file that says that systemd makes the cgroups of containers, "" for none."""
    for path, mark in _MARKS:
        if mark in (tree.text(node.tree, path) or ""):
            return path
    return _VERSION_2 if node.tree.status(_VERSION_2) else ""


def _link(node: Node, path: str, status: Status, why: str) -> Iterable[Finding]:
    link = f"/dev/char/{status.major}:{status.minor}"
    found = node.tree.status(link)
    if found and (found.major, found.minor) == (status.major, status.minor):
        return
    is_there = node.tree.status(link, follow=False) is not None
    state = f"does not lead to {path}" if is_there else f"is missing, the link to {path}"
    target = posixpath.relpath(path, "/dev/char")
    is_live = node.tree.root == "/"
    yield Finding(
        WARNING,
        f"{link} {state}, and systemd makes the cgroups of containers ({why})",
        subject=link,
        meaning="after `systemctl daemon-reload`, or when a unit is changed, running containers "
        'lose their GPUs: "Failed to initialize NVML: Unknown Error", as systemd looks devices up '
        "by this link",
        command="nvidia-ctk system create-dev-char-symlinks --create-all"
        if specs.has_toolkit(node)
        else f"ln -sfn {target} {link}",
        looked_at=(link, path, why),
        mend=Mend(f"link {link} to {target}", partial(_make, link, target)) if is_live else None,
    )


def _make(link: str, target: str) -> None:
    if os.path.islink(link):
        os.unlink(link)
    os.symlink(target, link)


def _imex(node: Node) -> Iterable[Finding]:
    number = facts.majors(node).get(_CHANNEL_MAJOR)
    members = [line for line in (tree.text(node.tree, _IMEX_NODES) or "").splitlines() if line]
    if number is None or not members:
        said = "this node is not in a domain of IMEX"
        return [absent(said, facts.DEVICES, _IMEX_NODES)]
    found = []
    if services.runs(node, "nvidia-imex.service", "nvidia-imex") is False:
        found.append(
            Finding(
                FAILED,
                f"nvidia-imex does not run, and {_IMEX_NODES} names {len(members)} nodes",
                meaning="memory cannot be shared with the GPUs of other machines: NCCL and "
                "cuMemImportFromShareableHandle fail over multi-node NVLink",
                command="systemctl enable --now nvidia-imex.service && nvidia-imex-ctl -N",
                looked_at=(_IMEX_NODES,),
            )
        )
    channels = node.tree.names(_CHANNELS)
    if not channels:
        found.append(
            Finding(
                WARNING,
                f"there is no channel in {_CHANNELS}",
                meaning="containers cannot share memory with the GPUs of other machines: a "
                "container needs a channel for that",
                command=f"mkdir -p {_CHANNELS} && mknod -m 666 {_CHANNELS}/channel0 c {number} 0",
                looked_at=(_CHANNELS,),
            )
        )
    return found or [ok(f"channels of IMEX: {', '.join(channels)}", _CHANNELS, _IMEX_NODES)]


CHECKS: tuple[Check, ...] = (
    Check(
        "devices.links",
        DEVICES,
        "systemd finds the device nodes in /dev/char, where it makes the containers' cgroups",
        _links,
        needs=("driver.module", "devices.numbers"),
    ),
    Check(
        "devices.imex",
        DEVICES,
        "A node of an IMEX domain has its daemon and a channel",
        _imex,
        needs=("driver.module",),
    ),
)
