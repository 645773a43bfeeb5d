# SPDX-License-Identifier: Apache-2.0
"""The links in /dev/char that systemd needs, and the channels of IMEX."""

from __future__ import annotations

import os
import posixpath
from functools import partial

from gpuhook.node_facts import program_facts
from gpuhook.node_facts.check import FAILED, WARNING, Finding, Fix, absent, check, first_items, ok
from gpuhook.node_facts.sources import node_readings, node_tree
from gpuhook.vendors.nvidia.doctor.facts import device_facts as devices
from gpuhook.vendors.nvidia.doctor.facts import driver_facts as facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.check import ExaminedNode, Findings
    from gpuhook.node_facts.sources.node_tree import Status

_SYSTEMD = "/run/systemd/system"
_CHANNELS = "/dev/nvidia-caps-imex-channels"
_CHANNEL_MAJOR = "nvidia-caps-imex-channels"
_IMEX_NODES = "/etc/nvidia-imex/nodes_config.cfg"
# Settings that make systemd manage the cgroups of containers. With cgroup v2, Docker and podman use
# systemd by default.
_MARKS = (
    ("/var/lib/kubelet/config.yaml", "cgroupDriver: systemd"),
    ("/etc/containerd/config.toml", "SystemdCgroup = true"),
    ("/etc/docker/daemon.json", "native.cgroupdriver=systemd"),
)
_SKIPS, _ASKS_SYSTEMD = (1, 1, 3), (1, 1, 7)
_PARSES_NUMBERS = 240  # accepts /dev/char/195:0 for the numbers without the link
_VERSION_2 = "/sys/fs/cgroup/cgroup.controllers"


@check(
    "devices.links",
    "systemd finds the device nodes in /dev/char if it manages the containers' cgroups",
    needs=("driver.module", "devices.numbers"),
)
def _links(node: ExaminedNode) -> Findings:
    if node.tree.status(_SYSTEMD) is None:
        return absent("this system does not run systemd", _SYSTEMD)
    manager = _systemd_manager(node)
    if not manager:
        return absent("no engine uses systemd for the cgroups of its containers", _SYSTEMD)
    skips = _skipping(node)
    if not skips:
        message = "no installed runc needs the links (1.1.3 to 1.1.6 do)"
        return absent(message, "runc", _SYSTEMD)
    nodes = [
        (devices.node_path(node, one), devices.device_status(node, one))
        for one in devices.all_nodes(node)
    ]
    existing = [(path, status) for path, status in nodes if status and status.is_character_device]
    wrong = [link for path, status in existing if (link := _wrong_link(node, path, status))]
    if wrong:
        return _unlinked(node, wrong, f"{skips}, {manager}")
    if not existing:
        return absent("the node has no driver device nodes")
    return ok("/dev/char has a link to each device node of the driver", "/dev/char")


def _skipping(node: ExaminedNode) -> str:
    """Return the runc that skips device rules without a link, "" if none does.

    1.1.3 to 1.1.6 do; later ones do with a systemd older than 240 (runc's changelog, 1.1.7). One of
    unknown version may.
    """
    if "runc" not in (node.readings.document(node_readings.PROGRAMS) or {}):
        return ""
    number = program_facts.version(node, "runc")
    if number is None:
        return "a runc of unknown version"
    named = f"runc {'.'.join(map(str, number))}"
    if _SKIPS <= number < _ASKS_SYSTEMD:
        return named
    systemd = _systemd(node)
    is_old = number >= _ASKS_SYSTEMD and systemd is not None and systemd < _PARSES_NUMBERS
    return f"{named} with systemd {systemd}" if is_old else ""


def _systemd(node: ExaminedNode) -> int | None:
    """Return the version of systemd by the name of its library, None if there is none."""
    for directory in ("/usr/lib/systemd", "/lib/systemd", "/usr/lib64/systemd"):
        for name in node.tree.names(directory):
            digits = name.removeprefix("libsystemd-shared-").partition(".")[0].partition("-")[0]
            if name.startswith("libsystemd-shared-") and digits.isdecimal():
                return int(digits)
    return None


def _systemd_manager(node: ExaminedNode) -> str:
    """Return the file that makes systemd manage the cgroups of containers, "" for none."""
    for path, mark in _MARKS:
        if mark in (node_tree.text(node.tree, path) or ""):
            return path
    return _VERSION_2 if node.tree.status(_VERSION_2) else ""


def _wrong_link(node: ExaminedNode, path: str, status: Status) -> tuple[str, str] | None:
    """Return (link, correct target) of a wrong or missing link, None for a correct one."""
    link = f"/dev/char/{status.major}:{status.minor}"
    found = node.tree.status(link)
    if found and (found.major, found.minor) == (status.major, status.minor):
        return None
    return link, posixpath.relpath(path, "/dev/char")


def _unlinked(node: ExaminedNode, wrong: list[tuple[str, str]], why: str) -> Finding:
    links = [link for link, _ in wrong]
    shown = first_items(links)
    return Finding(
        WARNING,
        f"{shown} do not lead to a driver device node, and systemd manages the cgroups of"
        f" containers ({why})",
        subject=links[0],
        meaning="after `systemctl daemon-reload`, or when a unit changes, running containers "
        'lose their GPUs: "Failed to initialize NVML: Unknown Error"; runc gives systemd no rule '
        "for a device without a link",
        command="gpuhook system create-dev-char-symlinks --replace",
        looked_at=("/dev/char", "runc", _SYSTEMD),
        fix=Fix(f"make the links {shown}", partial(_make_all, wrong))
        if node.tree.root == "/"
        else None,
    )


def _make_all(wrong: list[tuple[str, str]]) -> None:
    for link, target in wrong:
        make(link, target)


def make(link: str, target: str) -> None:
    """Make a symbolic link, in place of another link; raises OSError."""
    if os.path.islink(link):
        os.unlink(link)
    os.symlink(target, link)


@check(
    "devices.imex",
    "A node in an IMEX domain has the IMEX daemon and a channel",
    needs=("driver.module",),
)
def _imex(node: ExaminedNode) -> Findings:
    number = facts.majors(node).get(_CHANNEL_MAJOR)
    members = [line for line in (node_tree.text(node.tree, _IMEX_NODES) or "").splitlines() if line]
    if number is None or not members:
        message = "this node is not in an IMEX domain"
        return absent(message, facts.DEVICES, _IMEX_NODES)
    found = []
    if program_facts.runs(node, "nvidia-imex.service", "nvidia-imex") is False:
        found.append(
            Finding(
                FAILED,
                f"nvidia-imex is not running, but {_IMEX_NODES} lists {len(members)} nodes",
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
                f"{_CHANNELS} has no channel",
                meaning="containers cannot share memory with the GPUs of other machines: that "
                "needs a channel",
                command=f"mkdir -p {_CHANNELS} && mknod -m 666 {_CHANNELS}/channel0 c {number} 0",
                looked_at=(_CHANNELS,),
            )
        )
    return found or [ok(f"IMEX channels: {', '.join(channels)}", _CHANNELS, _IMEX_NODES)]


CHECKS = (_links, _imex)
