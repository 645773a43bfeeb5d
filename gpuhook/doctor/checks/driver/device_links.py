# SPDX-License-Identifier: Apache-2.0
"""What systemd needs to know of the device nodes, and the channels of IMEX."""

from __future__ import annotations

import os
import posixpath
from functools import partial

from gpuhook.doctor.check import DEVICES, FAILED, WARNING, Check, Finding, Mend, absent, ok
from gpuhook.doctor.facts import device_facts as devices
from gpuhook.doctor.facts import driver_facts as facts
from gpuhook.doctor.facts import engine_facts, service_state
from gpuhook.node import node_readings, node_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.node.node_tree import Status

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
_SKIPS, _ASKS_SYSTEMD = (1, 1, 3), (1, 1, 7)
_PARSES_NUMBERS = 240  # systemd takes /dev/char/195:0 for these numbers, be it there or not
_SHOWN = 3
_VERSION_2 = "/sys/fs/cgroup/cgroup.controllers"


def _links(node: ExaminedNode) -> Iterable[Finding]:
    if node.tree.status(_SYSTEMD) is None:
        return [absent("this system is not run by systemd", _SYSTEMD)]
    why = _systemd_drives(node)
    if not why:
        return [absent("no engine has systemd make the cgroups of its containers", _SYSTEMD)]
    skips = _skipping(node)
    if not skips:
        said = "no runc is known here that needs links for it, as 1.1.3 to 1.1.6 do"
        return [absent(said, "runc", _SYSTEMD)]
    there = [
        (devices.place(node, one), devices.device_status(node, one)) for one in devices.every(node)
    ]
    held = [(path, status) for path, status in there if status and status.is_character_device]
    wrong = [link for path, status in held if (link := _wrong_link(node, path, status))]
    if wrong:
        return [_unlinked(node, wrong, f"{skips}, {why}")]
    if not held:
        return [absent("there are no device nodes of the driver")]
    return [ok("/dev/char has a link to each device node of the driver", "/dev/char")]


def _skipping(node: ExaminedNode) -> str:
    """Return the runc that leaves out device rules without a link, "" where none does.

    runc 1.1.3 to 1.1.6 do, and later ones below a systemd older than 240 (its changelog, 1.1.7);
    one of unknown version may.
    """
    if "runc" not in (node.readings.document(node_readings.PROGRAMS) or {}):
        return ""
    number = engine_facts.version(node, "runc")
    if number is None:
        return "a runc of unknown version"
    named = f"runc {'.'.join(map(str, number))}"
    if _SKIPS <= number < _ASKS_SYSTEMD:
        return named
    systemd = _systemd(node)
    is_old = number >= _ASKS_SYSTEMD and systemd is not None and systemd < _PARSES_NUMBERS
    return f"{named} with systemd {systemd}" if is_old else ""


def _systemd(node: ExaminedNode) -> int | None:
    """Return the version of systemd, by the name of its library; None if that is nowhere."""
    for directory in ("/usr/lib/systemd", "/lib/systemd", "/usr/lib64/systemd"):
        for name in node.tree.names(directory):
            digits = name.removeprefix("libsystemd-shared-").partition(".")[0].partition("-")[0]
            if name.startswith("libsystemd-shared-") and digits.isdecimal():
                return int(digits)
    return None


def _systemd_drives(node: ExaminedNode) -> str:
    """Return the file that says that systemd makes the cgroups of containers, "" for none."""
    for path, mark in _MARKS:
        if mark in (node_tree.text(node.tree, path) or ""):
            return path
    return _VERSION_2 if node.tree.status(_VERSION_2) else ""


def _wrong_link(node: ExaminedNode, path: str, status: Status) -> tuple[str, str] | None:
    """Return a link of /dev/char and what it has to say, None where it leads to the device."""
    link = f"/dev/char/{status.major}:{status.minor}"
    found = node.tree.status(link)
    if found and (found.major, found.minor) == (status.major, status.minor):
        return None
    return link, posixpath.relpath(path, "/dev/char")


def _unlinked(node: ExaminedNode, wrong: list[tuple[str, str]], why: str) -> Finding:
    links = [link for link, _ in wrong]
    shown = ", ".join(links[:_SHOWN])
    more = f" and {len(links) - _SHOWN} more" if len(links) > _SHOWN else ""
    return Finding(
        WARNING,
        f"{shown}{more} lead to no device node of the driver, and systemd makes the cgroups of"
        f" containers ({why})",
        subject=links[0],
        meaning="after `systemctl daemon-reload`, or when a unit is changed, running containers "
        'lose their GPUs: "Failed to initialize NVML: Unknown Error", as runc tells systemd of no '
        "device that has no such link",
        command="gpuhook system create-dev-char-symlinks --replace",
        looked_at=("/dev/char", "runc", _SYSTEMD),
        mend=Mend(f"make the links {shown}{more}", partial(_make_all, wrong))
        if node.tree.root == "/"
        else None,
    )


def _make_all(wrong: list[tuple[str, str]]) -> None:
    for link, target in wrong:
        make(link, target)


def make(link: str, target: str) -> None:
    """Make a symbolic link in the place of another one, if there is one; raises OSError."""
    if os.path.islink(link):
        os.unlink(link)
    os.symlink(target, link)


def _imex(node: ExaminedNode) -> Iterable[Finding]:
    number = facts.majors(node).get(_CHANNEL_MAJOR)
    members = [line for line in (node_tree.text(node.tree, _IMEX_NODES) or "").splitlines() if line]
    if number is None or not members:
        said = "this node is not in a domain of IMEX"
        return [absent(said, facts.DEVICES, _IMEX_NODES)]
    found = []
    if service_state.runs(node, "nvidia-imex.service", "nvidia-imex") is False:
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
