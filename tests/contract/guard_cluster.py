# SPDX-License-Identifier: Apache-2.0
"""A node with a shared GPU whose driver enforces no limit, the plugin with its guard, and pods."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

from gpuhook.containers.hot import ledger
from gpuhook.host.hot import procfs
from tests.contract import bundles, kubelet_side, roots, runtimes
from tests.contract.runtimes import Container
from tests.kubelet.pod_resources import PodResources, pod
from tests.kubelet.process import GPU, PluginProcess
from tests.simulated import build
from tests.simulated.driver_memory import DriverMemory
from tests.waiting import eventually

MIB = 1 << 20
FAIR = (15360 - 256) // 4  # of a T4
CONFIG = """\
version: v1
sharing:
  timeSlicing:
    resources:
    - {{name: nvidia.com/gpu, replicas: 4, memory: fair}}
gpuhook:
  guard: {{action: {action}, grace: {grace}, killAfter: 1s, shortestInterval: 100ms,
           longestInterval: 300ms}}
"""


class Cluster:
    """A node with a T4, its plugin, and pods that hold replicas of it."""

    def __init__(
        self, place: Path, running: PluginProcess, pods: PodResources, driver: DriverMemory
    ) -> None:
        self.place = place
        self.running = running
        self.pods = pods
        self.driver = driver
        self.uuid = str(running.node.node.gpus[0].uuid)
        self.stack = ExitStack()

    def pod(
        self,
        name: str,
        *words: str,
        recorded: tuple[str, int] | None = None,
        is_chrooted: bool = False,
        user: int = 0,
    ) -> str:
        """Start a container of a pod with a replica that runs `words`; return its id.

        `recorded` is the enforcer of its limit, and the limit in MiB, for the ledger. If it
        `is_chrooted`, its first process has a directory of the container as its root. `user` is the
        uid of its processes.
        """
        allocation = self.running.kubelet.allocate(GPU, 1)
        self.pods.pods = [*self.pods.pods, pod("default", name, "main", GPU, allocation.ids)]

        def prepare(bundle: bundles.Bundle, identity: str) -> None:
            kubelet_side.apply_allocation(kubelet_side.allocation_of(allocation.response), bundle)
            if recorded is not None:
                by, limit = recorded
                record(identity, name, {"device": self.uuid, "hard": limit * MIB, "by": by})
            if is_chrooted:
                self._chroot(bundle)
            config = bundle.config()
            config["process"]["user"]["uid"] = user
            bundle.write(config)

        return self._start(words, f"/kubepods/pod{name}", prepare)

    def _chroot(self, bundle: bundles.Bundle) -> None:
        (bundle.root / "jail").mkdir()
        shutil.copy(bundle.root / "gpu-probe", bundle.root / "jail")
        shutil.copy(roots.musl() / "bin/busybox", bundle.root)
        bundle.mount(self.driver.socket, "/jail/gpu.sock", "rbind", "rprivate", "rw")
        config = bundle.config()
        config["process"]["args"] = ["/busybox", "chroot", "/jail", *config["process"]["args"]]
        bundle.write(config)

    def start_in_cgroup(self, mebibytes: int, limit: int, cgroup: str) -> str:
        """Start a container in a cgroup with another name; return its id.

        It has no pod, and the ledger has its limit in MiB, and its first process.
        """
        above = f"/{bundles.CGROUP}/{cgroup}"
        identity = self._start(("alloc", str(mebibytes), "hold"), above, _nothing, named=False)
        pid = self.pid_of(mebibytes)
        memory = {"device": self.uuid, "hard": limit * MIB, "soft": 0, "by": ""}
        first = [pid, procfs.start_time(pid)]
        ledger.record("", identity, {"pid": 0, "started": None, "init": first, "memory": [memory]})
        return identity

    def start_without_replica(self, *words: str) -> str:
        """Start a container without an assigned replica; return its id."""
        return self._start(words, "/docker", _nothing)

    def _start(
        self,
        words: tuple[str, ...],
        above: str,
        prepare: Callable[[bundles.Bundle, str], None],
        *,
        named: bool = True,
    ) -> str:
        identity = uuid4().hex * 2
        root = self.place / identity[:8] / "root"
        for name in ("dev", "proc", "sys", "run", "tmp", "var"):
            (root / name).mkdir(parents=True)
        (root / "var/run").symlink_to("/run")  # as images have it
        shutil.copy(build.gpu_probe(), root / "gpu-probe")
        args = ("/gpu-probe", "/gpu.sock", self.uuid, *words)
        path = f"/{bundles.CGROUP}{above}/{identity}" if named else above
        made = bundles.bundle(root.parent, root, args, linux={"cgroupsPath": path})
        made.mount(self.driver.socket, "/gpu.sock", "rbind", "rprivate", "rw")
        prepare(made, identity)
        life: Container = self.stack.enter_context(runtimes.lifecycle(made, container_id=identity))
        life.start()
        return identity

    def pid_of(self, mebibytes: int) -> int:
        """Return the pid of the process with this memory in MiB, as soon as there is one."""

        def found() -> list[int]:
            return [pid for pid, held in self.driver.held().items() if held == mebibytes * MIB]

        eventually(found, f"a process with {mebibytes} MiB")
        return found()[0]

    def sent_signals(self) -> list[tuple[int, str]]:
        """Return (pid, signal) for each signal that the guard sent."""
        lines = [line for line in self.running.log() if line.get("reason") == "ProcessEnded"]
        return [(line["pid"], line["event"].split(": ")[1].split()[0]) for line in lines]

    def ps(self) -> dict[str, dict[str, Any]]:
        """Return what `gpuhook ps` prints of each container's memory of the GPU, by id."""
        command = [sys.executable, "-m", "gpuhook", "ps", "--recorded", "-o", "json"]
        env = {**os.environ, "GPUHOOK_STATE_DIR": str(self.running.state)}
        shown = subprocess.run(command, capture_output=True, check=True, env=env)
        containers = json.loads(shown.stdout)["containers"]
        return {one["id"]: one["memory"][0] for one in containers}

    def offenders(self) -> list[dict[str, Any]]:
        """Return the containers above their limits, from the guard's file."""
        file = self.running.state / "guard.json"
        if not file.exists():
            return []
        return list(json.loads(file.read_text(encoding="utf-8"))["over"])


def _nothing(_bundle: bundles.Bundle, _identity: str) -> None:
    """Prepare nothing."""


def record(identity: str, pod_name: str, memory: Mapping[str, object]) -> None:
    """Enter a container of a pod into the ledger, as the wrapper does."""
    names = {"namespace": "default", "pod": pod_name, "container": "main"}
    ours = {"pid": os.getpid(), "started": procfs.start_time(os.getpid())}
    ledger.record("", identity, {**names, **ours, "memory": [{"soft": 0, **memory}]})
