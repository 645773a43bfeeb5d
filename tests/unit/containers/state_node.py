# SPDX-License-Identifier: Apache-2.0
"""A node whose containers are plain processes with the state of runc and crun."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from gpuhook.host.hot import procfs


class Node:
    """A node whose containers are plain processes."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.roots = [str(place / "runc"), str(place / "crun")]
        self.processes: list[subprocess.Popen[bytes]] = []

    def process(self) -> tuple[int, int]:
        """Start a process, and return its pid and start time."""
        process = subprocess.Popen(["sleep", "60"])
        self.processes.append(process)
        started = procfs.start_time(process.pid)
        assert started is not None
        return process.pid, started

    def bundle(self, identity: str, annotations: dict[str, str] | None) -> str:
        """Write a config.json and return its bundle."""
        bundle = self.place / "bundles" / identity
        bundle.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"ociVersion": "1.0.2", "annotations": annotations})
        (bundle / "config.json").write_text(text)
        return str(bundle)

    def runc(
        self,
        identity: str,
        annotations: dict[str, str] | None = None,
        root: str = "runc",
        **state: Any,
    ) -> tuple[int, int]:
        """Make a container with the state of runc 1.1 in `root`; `state` replaces keys of it."""
        pid, started = self.process()
        config = {
            "rootfs": "/var/lib/c/" + identity,
            "namespaces": [{"type": "NEWNS", "path": ""}],
            "labels": ["org.example=1", "bundle=" + self.bundle(identity, annotations)],
        }
        document = {
            "id": identity,
            "init_process_pid": pid,
            "init_process_start": started,
            "created": "2026-01-02T09:23:21.334588198Z",
            "config": config,
            "rootless": False,
            "cgroup_paths": {"devices": f"/sys/fs/cgroup/devices/{identity}"},
            **state,
        }
        self.write(root, identity, "state.json", json.dumps(document))
        return pid, started

    def crun(self, identity: str, **state: Any) -> tuple[int, int]:
        """Make a container with the state of crun 1.8."""
        pid, started = self.process()
        document = {
            "pid": pid,
            "process-start-time": started,
            "cgroup-path": f"/machine.slice/{identity}",
            "scope": "",
            "rootfs": "/var/lib/c/" + identity,
            "systemd-cgroup": False,
            "bundle": self.bundle(identity, None),
            "created": "2026-01-02T09:23:21.979439Z",
            "owner": "root",
            "detached": True,
            **state,
        }
        self.write("crun", identity, "status", json.dumps(document))
        return pid, started

    def write(self, runtime: str, identity: str, name: str, text: str) -> Path:
        directory = self.place / runtime / identity
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
        return directory / name
