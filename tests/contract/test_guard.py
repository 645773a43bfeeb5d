# SPDX-License-Identifier: Apache-2.0
"""Containers of runc share a GPU whose driver enforces no limit; the plugin's guard watches.

The plugin is a separate process, the memory is a simulated driver's, and the rest is real: the
containers with their pid namespaces and cgroups, their forks, a process of the host, the signals.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gpuhook.containers.hot import ledger
from gpuhook.host.hot import procfs
from gpuhook.memory_limits import guard_state
from tests.contract import bundles, kubelet_side, roots, runtimes
from tests.contract.runtimes import Container
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.pod_resources import PodResources, pod
from tests.kubelet.process import GPU, PluginProcess, plugin
from tests.simulated import build, cgroups, driver_memory
from tests.simulated.driver_memory import DriverMemory
from tests.simulated.node import make_node
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(
    os.stat("/proc/self/ns/pid").st_ino != 0xEFFFFFFC,
    reason="the guard needs the pids of the host, and these tests have a pid namespace",
)

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
    """A node with a T4, its plugin, and pods that hold units of it."""

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
    ) -> str:
        """Start a container of a pod that holds a unit and does `words`; returns its id.

        `recorded` is who holds it to its limit, and how many MiB, as the ledger has it. If it
        `is_chrooted`, its first process has a directory of the container as its root.
        """
        given = self.running.kubelet.allocate(GPU, 1)
        self.pods.pods = [*self.pods.pods, pod("default", name, "main", GPU, given.ids)]

        def prepare(bundle: bundles.Bundle, identity: str) -> None:
            kubelet_side.hand(kubelet_side.read(given.response), bundle)
            if recorded is not None:
                by, limit = recorded
                record(identity, name, {"device": self.uuid, "hard": limit * MIB, "by": by})
            if is_chrooted:
                self._chroot(bundle)

        return self._start(words, f"/kubepods/pod{name}", prepare)

    def _chroot(self, bundle: bundles.Bundle) -> None:
        (bundle.root / "jail").mkdir()
        shutil.copy(bundle.root / "gpu-probe", bundle.root / "jail")
        shutil.copy(roots.musl() / "bin/busybox", bundle.root)
        bundle.mount(self.driver.socket, "/jail/gpu.sock", "rbind", "rprivate", "rw")
        config = bundle.config()
        config["process"]["args"] = ["/busybox", "chroot", "/jail", *config["process"]["args"]]
        bundle.write(config)

    def elsewhere(self, mebibytes: int, limit: int, cgroup: str) -> str:
        """Start a container in a cgroup that is not called like it; returns its id.

        It is of no pod, and the ledger knows its limit, MiB, and its first process.
        """
        above = f"/{bundles.CGROUP}/{cgroup}"
        identity = self._start(("alloc", str(mebibytes), "hold"), above, _nothing, named=False)
        pid = self.pid_of(mebibytes)
        memory = {"device": self.uuid, "hard": limit * MIB, "soft": 0, "by": ""}
        first = [pid, procfs.start_time(pid)]
        ledger.record("", identity, {"pid": 0, "started": None, "init": first, "memory": [memory]})
        return identity

    def stranger(self, *words: str) -> str:
        """Start a container without an assigned unit; returns its id."""
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
        """Return the pid of the process that holds so much, as soon as there is one."""

        def found() -> list[int]:
            return [pid for pid, held in self.driver.held().items() if held == mebibytes * MIB]

        eventually(found, f"a process with {mebibytes} MiB")
        return found()[0]

    def ended(self) -> list[tuple[int, str]]:
        """Return (pid, signal) of what the guard has sent."""
        lines = [line for line in self.running.log() if line.get("reason") == "ProcessEnded"]
        return [(line["pid"], line["event"].split(": ")[1].split()[0]) for line in lines]

    def ps(self) -> dict[str, dict[str, Any]]:
        """Return what `gpuhook ps` prints of each container's memory of the GPU, by id."""
        command = [sys.executable, "-m", "gpuhook", "ps", "--recorded", "-o", "json"]
        env = {**os.environ, "GPUHOOK_STATE_DIR": str(self.running.state)}
        shown = subprocess.run(command, capture_output=True, check=True, env=env)
        containers = json.loads(shown.stdout)["containers"]
        return {one["id"]: one["memory"][0] for one in containers}

    def marks(self) -> list[dict[str, Any]]:
        """Return who is above its limit, as the guard's file has it."""
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


Made = Callable[..., Cluster]


@pytest.fixture
def cluster(tmp_path: Path, short_path: Path) -> Iterator[Made]:
    """Return a function: action, grace, env -> a cluster."""
    with ExitStack() as stack:

        def made(action: str, grace: str = "1s", env: Mapping[str, str] | None = None) -> Cluster:
            kubelet = stack.enter_context(Kubelet(short_path / "device-plugins"))
            (short_path / "pod-resources").mkdir()
            pods = stack.enter_context(PodResources(short_path / "pod-resources/kubelet.sock"))
            node = make_node(tmp_path / "node", "t4")
            driver = stack.enter_context(driver_memory.serving(short_path, node))
            own = {"POD_RESOURCES_SOCKET": str(pods.socket), **(env or {})}
            text = CONFIG.format(action=action, grace=grace)
            running = stack.enter_context(plugin(tmp_path / "plugin", node, kubelet, text, own))
            kubelet.wait_for_devices(GPU, 4)
            cluster = Cluster(tmp_path, running, pods, driver)
            stack.enter_context(cluster.stack)
            return cluster

        yield made


def test_only_the_offender_is_ended(cluster: Made) -> None:
    """It forks, one of its processes does not care for SIGTERM, and around it others use more."""
    node = cluster("kill")
    node.pod("neighbour", "alloc", "3700", "fork", "1", "alloc", "50", "hold")
    stranger = node.stranger("alloc", "201", "hold")
    with node.driver.started(node.uuid, "alloc", "5000", "hold") as of_host:
        offender = node.pod("offender", "alloc", "1000", "ignore", "fork", "1", "alloc", "3001",
                            "hold")  # fmt: skip
        culprit, others = node.pid_of(3001), {*node.driver.held()}
        told = node.running.wait_for_log(reason="MemoryLimitExceeded")
        assert told["container"] == offender
        assert told["limit"] == FAIR * MIB
        assert "default/offender/main" in told["event"] or offender[:12] in told["event"]
        eventually(lambda: len(node.ended()) == 2, "the culprit's end")
        assert node.ended() == [(culprit, "SIGTERM"), (culprit, "SIGKILL")]
        eventually(lambda: culprit not in node.driver.held(), "its memory free")
        node.running.wait_for_log(reason="MemoryLimitKept")
        assert node.marks() == []
        assert of_host.poll() is None
        assert {node.pid_of(amount) for amount in (3700, 50, 201, 5000)} <= others
    told = node.running.wait_for_log(event="a container without a share uses a shared GPU")
    assert told["container"] == stranger
    counted = node.running.metrics()
    for action in ("report", "terminate", "kill"):
        wanted = f'gpuhook_guard_actions_total{{action="{action}",resource="{GPU}"}} 1.0'
        assert wanted in counted


def test_what_the_ledger_says_counts_first(cluster: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrowed by its pod a container has less than its unit; the driver's are left to it."""
    node = cluster("terminate")
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(node.running.state))
    node.pod("held", "alloc", "4002", "hold", recorded=("driver", 3000))
    narrowed = node.pod("narrowed", "alloc", "1001", "hold", recorded=("", 900))
    other = node.pid_of(4002)
    told = node.running.wait_for_log(reason="MemoryLimitExceeded")
    assert (told["container"], told["limit"]) == (narrowed, 900 * MIB)
    assert told["event"].startswith("default/narrowed/main uses 1001 MiB")
    eventually(node.ended, "the end of a process")
    node.running.wait_for_log(reason="MemoryLimitKept")
    assert [name for _, name in node.ended()] == ["SIGTERM"]
    assert list(node.driver.held()) == [other]


def test_processes_in_a_pid_namespace_of_their_own(
    cluster: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two forks is enough to come below the limit, and the namespace's first stays."""
    node = cluster("kill")
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(node.running.state))
    words = [str(build.gpu_probe()), str(node.driver.socket), node.uuid]
    words += ["alloc", "100", "fork", "2", "alloc", "960", "hold"]
    enter = 'echo $$ > "$0/cgroup.procs" && exec unshare --pid --fork --kill-child "$@"'
    with cgroups.made() as above:
        directory = above / (uuid4().hex * 2)
        directory.mkdir()
        with subprocess.Popen(["sh", "-c", enter, str(directory), *words]) as process:
            eventually(lambda: len(node.driver.held()) == 3, "two forks")
            first, forks = node.pid_of(100), {*node.driver.held()}
            record(directory.name, "job", {"device": node.uuid, "hard": 1500 * MIB, "by": ""})
            node.running.wait_for_log(reason="MemoryLimitKept")
            ((ended, name),) = node.ended()
            assert name == "SIGTERM"
            assert ended in forks - {first}
            assert {*node.driver.held()} == forks - {ended}
            process.kill()


def test_who_bounds_memory_is_told_on_the_node(
    cluster: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The running guard ends processes above their limit; a killed plugin limits no process."""
    node = cluster("kill", grace="300s")
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(node.running.state))
    above = node.pod("above", "alloc", "1001", "hold", recorded=("", 900))
    kept = node.pod("kept", "alloc", "1002", "hold", recorded=("", 2000))
    held = node.pod("held", "alloc", "1003", "hold", recorded=("driver", 900))
    eventually(lambda: (node.ps()[above]["guard"] or {}).get("over"), "a mark")
    eventually(lambda: node.ps()[kept]["guard"], "a share that is watched")
    told = node.ps()
    assert [told[one]["by"] for one in (above, kept, held)] == ["guard", "guard", "driver"]
    assert told[above]["guard"]["over"]["used"] == 1001 * MIB
    assert told[kept]["guard"] == {"limit": 2000 * MIB, "action": "kill", "over": None}
    assert told[held]["guard"] is None
    node.running.configure(CONFIG.format(action="report", grace="300s"))
    eventually(lambda: node.ps()[above]["by"] == "nobody", "a guard that only reports")
    assert node.ps()[above]["guard"]["over"]["done"] == []
    node.running.configure(CONFIG.format(action="kill", grace="300s"))
    eventually(lambda: node.ps()[above]["by"] == "guard", "one that kills")
    node.running.stop(signal.SIGKILL)
    told = node.ps()
    assert [told[one]["by"] for one in (above, kept, held)] == ["nobody", "nobody", "driver"]
    assert told[above]["guard"] is None


@pytest.mark.alone  # what shares a cgroup has to be there before the guard looks again
def test_a_cgroup_that_is_not_called_like_its_container(
    cluster: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger knows its first process; in a cgroup that two share, no process is ended."""
    node = cluster("terminate")
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(node.running.state))
    for mebibytes in (1002, 1003):
        node.elsewhere(mebibytes, 900, "apps/shared")
    own = node.elsewhere(1001, 900, "apps/own")
    culprit = node.pid_of(1001)
    told = node.running.wait_for_log(reason="MemoryLimitExceeded")
    assert (told["container"], told["limit"]) == (own, 900 * MIB)
    eventually(lambda: node.ended() == [(culprit, "SIGTERM")], "the end of the only offender")
    node.running.wait_for_log(reason="MemoryLimitKept")
    assert sorted(node.driver.held().values()) == [1002 * MIB, 1003 * MIB]
    lines = [one for one in node.running.log() if one.get("reason") == "MemoryLimitExceeded"]
    assert [one["container"] for one in lines] == [own]
    assert [key for key in guard_state.watched() if key[0] != own] == []


def test_a_container_that_hides_its_grant(cluster: Made) -> None:
    """Below chroot(2) a process sees no mount of its grant: its container is limited as before."""
    node = cluster("kill")
    node.pod("neighbour", "alloc", "101", "hold")
    offender = node.pod("offender", "alloc", "4005", "hold", is_chrooted=True)
    culprit = node.pid_of(4005)
    assert Path(f"/proc/{culprit}/root/gpu.sock").exists()
    assert not Path(f"/proc/{culprit}/root/proc").exists()
    told = node.running.wait_for_log(reason="MemoryLimitExceeded")
    assert (told["container"], told["limit"]) == (offender, FAIR * MIB)
    assert "hides its mounts" in told["event"]
    assert node.ended() == []


def test_report_ends_nobody_and_the_mark_outlives_the_plugin(cluster: Made) -> None:
    node = cluster("report")
    offender = node.pod("offender", "alloc", "4003", "hold")
    culprit = node.pid_of(4003)
    eventually(lambda: node.marks() and node.marks()[0]["spent"] > 1, "a mark")
    (before,) = node.marks()
    assert (before["id"], before["used"], before["sent"]) == (offender, 4003 * MIB, [])
    assert node.running.stop() == 0
    node.running.start()
    eventually(lambda: node.marks()[0]["spent"] > before["spent"], "the grace going on")
    assert node.marks()[0]["since"] == before["since"]
    assert node.pid_of(4003) == culprit
    assert node.ended() == []
    node.running.configure(CONFIG.format(action="terminate", grace="1s"))
    eventually(lambda: node.ended() == [(culprit, "SIGTERM")], "what is configured now")


def test_a_plugin_without_the_pids_of_the_host_does_nothing(cluster: Made) -> None:
    node = cluster("kill", grace="0s")
    node.running.stop()
    node.running.prefix = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    node.running.start()
    node.running.kubelet.wait_for_devices(GPU, 4)
    node.pod("offender", "alloc", "4004", "hold")
    culprit = node.pid_of(4004)
    node.running.wait_for_log(reason="LimitsNotWatched", code="GH1885")
    assert node.pid_of(4004) == culprit
    assert node.marks() == []
    node.running.stop(signal.SIGKILL)  # unshare passes nothing else on
