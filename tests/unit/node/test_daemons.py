# SPDX-License-Identifier: Apache-2.0
"""The processes that are the node's engines, and not programs in containers with their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuhook.node import daemons, node_programs
from gpuhook.node_facts.sources.node_tree import DirectoryTree

HOST, OTHER = "mnt:[4026531841]", "mnt:[4026532999]"
POD = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-abc.scope"


def _process(
    root: Path,
    pid: int,
    name: str,
    *,
    mounts: str = HOST,
    uid: int = 0,
    cgroup: str = "/system.slice/kubelet.service",
    argv: tuple[str, ...] = (),
) -> None:
    place = root / "proc" / str(pid)
    (place / "ns").mkdir(parents=True)
    (place / "ns/mnt").symlink_to(mounts)
    (place / "exe").symlink_to(f"/usr/bin/{name}")
    (place / "comm").write_text(name[:15] + "\n", encoding="utf-8")
    (place / "cmdline").write_bytes(b"\0".join(w.encode() for w in argv or (name,)) + b"\0")
    (place / "status").write_text(f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n", "utf-8")
    (place / "cgroup").write_text(f"0::{cgroup}\n", encoding="utf-8")
    (place / "stat").write_text(f"{pid} ({name}) S " + " ".join(["0"] * 40) + "\n", "utf-8")


def _names(root: Path) -> dict[int, str]:
    return {one["pid"]: one["name"] for one in daemons.processes(DirectoryTree(str(root)))}


def test_engines_are_processes_of_the_node(tmp_path: Path) -> None:
    _process(tmp_path, 1, "systemd")
    _process(tmp_path, 10, "containerd", cgroup="/")
    _process(tmp_path, 11, "dockerd", mounts=OTHER, cgroup="/system.slice/snap.docker.service")
    _process(tmp_path, 12, "kubelet", mounts=OTHER, cgroup="/../../system.slice/kubelet.service")
    _process(tmp_path, 20, "containerd", mounts=OTHER, cgroup=POD)
    _process(tmp_path, 21, "kubelet", mounts=OTHER, cgroup=f"{POD}/system.slice/kubelet.service")
    _process(tmp_path, 22, "crio", mounts=OTHER, cgroup="/")
    _process(tmp_path, 23, "dockerd", uid=54321)
    _process(tmp_path, 24, "nvidia-persistenced", mounts=OTHER, cgroup=POD)
    assert _names(tmp_path) == {
        10: "containerd",
        11: "dockerd",
        12: "kubelet",
        24: "nvidia-persistenced",
    }


def test_program_of_a_container_is_not_run(tmp_path: Path) -> None:
    """A pod may have a volume at the host's path, with a program named containerd."""
    ran = tmp_path / "ran"
    volume = "/var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/v"
    program = tmp_path / volume[1:] / "containerd"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ntouch {ran}\n", encoding="utf-8")
    program.chmod(0o755)
    _process(tmp_path, 1, "systemd")
    _process(tmp_path, 20, "containerd", mounts=OTHER, cgroup=POD, uid=os.geteuid())
    exe = tmp_path / "proc/20/exe"
    exe.unlink()
    exe.symlink_to(f"{volume}/containerd")
    tree = DirectoryTree(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        node_programs.containerd(tree, daemons.processes(tree))
    assert not ran.exists()
