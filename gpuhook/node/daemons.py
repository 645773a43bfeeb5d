# SPDX-License-Identifier: Apache-2.0
"""The engines and daemons of a node that affect GPUs: their units and processes."""

from __future__ import annotations

import os
import re
from typing import Any

from gpuhook.host.hot import procfs
from gpuhook.node import node_programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.sources.node_tree import Tree

SYSTEMD = "/run/systemd/system"  # it exists if systemd runs: sd_booted(3)
UNITS = (
    "containerd.service", "cri-docker.service", "crio.service", "docker.service",
    "docker.socket", "gpuhook-devices.service", "gpuhook-nri.service", "gpuhook-refresh.path",
    "gpuhook-refresh.service", "gpuhook-refresh.timer", "k0scontroller.service",
    "k0sworker.service", "k3s-agent.service", "k3s.service", "kubelet.service",
    "nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service", "nvidia-dcgm.service",
    "nvidia-fabricmanager.service", "nvidia-imex.service", "nvidia-mig-manager.service",
    "nvidia-persistenced.service", "podman.service", "podman.socket", "rke2-agent.service",
    "rke2-server.service", "snap.docker.dockerd.service",
    "snap.microk8s.daemon-containerd.service", "snap.microk8s.daemon-kubelite.service",
)  # fmt: skip
PROGRAMS = frozenset((
    "containerd", "crio", "cri-dockerd", "dockerd", "gpu-kubelet-plugin", "gpuhook", "k0s", "k3s",
    "k3s-agent", "k3s-server", "kubelet", "kubelite", "nv-fabricmanager", "nv-hostengine",
    "nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-device-plugin", "nvidia-imex",
    "nvidia-persistenced", "podman", "rke2",
))  # fmt: skip
# Programs of a driver or a plugin that also run in containers. All others must be processes of the
# node itself: a container can give its processes any name, and their arguments and programs would
# be read and run here as root.
_IN_CONTAINERS = frozenset((
    "gpu-kubelet-plugin", "gpuhook", "nv-fabricmanager", "nv-hostengine", "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server", "nvidia-device-plugin", "nvidia-imex", "nvidia-persistenced",
))  # fmt: skip
# A service of the node's systemd, also as a cgroup namespace shows it.
_SERVICE = re.compile(r"(?:/\.\.)*/[^/]+\.slice/[^/]+\.service")
_INIT_MOUNTS = "/proc/1/ns/mnt"
_KEYS = {
    "LoadState": "load",
    "ActiveState": "active",
    "Result": "result",
    "UnitFileState": "enabled",
}
_TICKS = os.sysconf("SC_CLK_TCK")


def units(root: str = "/") -> dict[str, dict[str, str]]:
    """Return systemd's report on each unit: its load and active state, result, enablement.

    A missing unit has the load state "not-found". Raises OSError if systemctl fails.
    """
    words = ["systemctl", "show", "--no-pager", f"--property=Id,{','.join(_KEYS)}", *UNITS]
    return parsed(node_programs.answer(words, root))


def parsed(text: str) -> dict[str, dict[str, str]]:
    """Return the units that `systemctl show` prints as paragraphs of Key=value."""
    found: dict[str, dict[str, str]] = {}
    for paragraph in text.split("\n\n"):
        facts = dict(line.partition("=")[::2] for line in paragraph.splitlines())
        name = facts.get("Id")
        if name:
            found[name] = {ours: facts.get(theirs, "") for theirs, ours in _KEYS.items()}
    return found


def processes(tree: Tree) -> list[dict[str, Any]]:
    """Return the processes of engines and daemons, by pid; `started` in seconds of the epoch."""
    booted = _booted(tree)
    found = []
    for name in tree.names("/proc"):
        if name.isdecimal():
            process = _process(tree, int(name), booted)
            if process is not None:
                found.append(process)
    return sorted(found, key=lambda one: one["pid"])


def _process(tree: Tree, pid: int, booted: float) -> dict[str, Any] | None:
    """Return an engine or a daemon, None for other processes, and for one that has exited."""
    try:
        raw = tree.read(f"/proc/{pid}/cmdline", 65536) or b""
        comm = (tree.read(f"/proc/{pid}/comm", 64) or b"").decode("utf-8", "replace").strip()
    except OSError:
        return None
    argv = [word.decode("utf-8", "replace") for word in raw.rstrip(b"\0").split(b"\0")]
    words = argv[0].split()  # k3s writes its whole title there
    name = os.path.basename(words[0]) if words else comm
    known = name if name in PROGRAMS else comm
    if known not in PROGRAMS:
        return None
    if known not in _IN_CONTAINERS and not _is_nodes_own(tree, pid):
        return None
    started = _started(tree, pid)
    if started is None:
        return None
    return {
        "pid": pid,
        "name": known,
        "argv": argv,
        "started": round(booted + started / _TICKS, 2),
        "exe": _target(tree, f"/proc/{pid}/exe"),
    }


def _is_nodes_own(tree: Tree, pid: int) -> bool:
    """Return whether a process belongs to root or this user, and to no container.

    It sees the mounts of the first process, or is part of a service: a snap's has its own mounts,
    and the mounts of other users' processes may be hidden.
    """
    if _owner(tree, pid) not in (0, os.geteuid()):
        return False
    mounts = _target(tree, f"/proc/{pid}/ns/mnt")
    if mounts and mounts == _target(tree, _INIT_MOUNTS):
        return True
    return _SERVICE.fullmatch(_cgroup(tree, pid)) is not None


def _owner(tree: Tree, pid: int) -> int:
    """Return the effective user of a process, -1 if it has exited: proc_pid_status(5), Uid."""
    for line in _lines(tree, f"/proc/{pid}/status"):
        words = line.split()
        if words[:1] == ["Uid:"] and words[2:3]:
            return int(words[2])
    return -1


def _cgroup(tree: Tree, pid: int) -> str:
    """Return the cgroup of a process in systemd's hierarchy, "" without one: cgroups(7)."""
    for line in _lines(tree, f"/proc/{pid}/cgroup"):
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers in ("", "name=systemd") and path:
            return path
    return ""


def _lines(tree: Tree, path: str) -> list[str]:
    try:
        return (tree.read(path, 65536) or b"").decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _target(tree: Tree, path: str) -> str:
    try:
        found = tree.status(path, follow=False)
    except OSError:
        return ""
    return found.target if found else ""


def _started(tree: Tree, pid: int) -> int | None:
    try:
        content = tree.read(f"/proc/{pid}/stat", 65536)
        return None if content is None else procfs.start_ticks(content)
    except (OSError, ValueError, IndexError):
        return None


def _booted(tree: Tree) -> float:
    """Return the boot time of the node, in seconds of the epoch: proc_stat(5), btime."""
    for line in (tree.read("/proc/stat") or b"").splitlines():
        if line.startswith(b"btime "):
            return float(line.split()[1])
    return 0.0
