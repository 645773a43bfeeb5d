# SPDX-License-Identifier: Apache-2.0
"""The device plugin's guard, with containers of runc on a GPU whose driver enforces no limit.

The plugin is a separate process, the memory is a simulated driver's, and the rest is real: the
containers with their pid namespaces and cgroups, their forks, a process on the host, the signals.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from gpuhook.memory_limits import guard_state
from tests.contract.guard_cluster import CONFIG, FAIR, MIB, Cluster, record
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.pod_resources import PodResources
from tests.kubelet.process import GPU, plugin
from tests.simulated import build, cgroups, driver_memory
from tests.simulated.node import make_node
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(
    os.stat("/proc/self/ns/pid").st_ino != 0xEFFFFFFC,
    reason="the guard needs the pids of the host, and these tests have a pid namespace",
)

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


def test_guard_ends_the_offender_only(cluster: Made) -> None:
    """The offender forks, and one of its processes ignores SIGTERM; neighbours and the host's
    processes use more memory.
    """
    node = cluster("kill")
    node.pod("neighbor", "alloc", "3700", "fork", "1", "alloc", "50", "hold")
    stranger = node.start_without_replica("alloc", "201", "hold")
    with node.driver.started(node.uuid, "alloc", "5000", "hold") as host_process:
        offender = node.pod("offender", "alloc", "1000", "ignore", "fork", "1", "alloc", "3001",
                            "hold")  # fmt: skip
        culprit, others = node.pid_of(3001), {*node.driver.held()}
        line = node.running.wait_for_log(reason="MemoryLimitExceeded")
        assert line["container"] == offender
        assert line["limit"] == FAIR * MIB
        assert "default/offender/main" in line["event"] or offender[:12] in line["event"]
        eventually(lambda: len(node.sent_signals()) == 2, "the culprit's end")
        assert node.sent_signals() == [(culprit, "SIGTERM"), (culprit, "SIGKILL")]
        eventually(lambda: culprit not in node.driver.held(), "its memory free")
        node.running.wait_for_log(reason="MemoryLimitKept")
        assert node.offenders() == []
        assert host_process.poll() is None
        assert {node.pid_of(amount) for amount in (3700, 50, 201, 5000)} <= others
    line = node.running.wait_for_log(event="a container without a share uses a shared GPU")
    assert line["container"] == stranger
    metrics = node.running.metrics()
    for action in ("report", "terminate", "kill"):
        wanted = f'gpuhook_guard_actions_total{{action="{action}",resource="{GPU}"}} 1.0'
        assert wanted in metrics


def test_limit_of_the_ledger_overrides_the_replica(
    cluster: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod's lower limit applies; limits that the driver enforces are not the guard's."""
    node = cluster("terminate")
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(node.running.state))
    node.pod("held", "alloc", "4002", "hold", recorded=("driver", 3000))
    narrowed = node.pod("narrowed", "alloc", "1001", "hold", recorded=("", 900))
    other = node.pid_of(4002)
    line = node.running.wait_for_log(reason="MemoryLimitExceeded")
    assert (line["container"], line["limit"]) == (narrowed, 900 * MIB)
    assert line["event"].startswith("default/narrowed/main uses 1001 MiB")
    eventually(node.sent_signals, "the end of a process")
    node.running.wait_for_log(reason="MemoryLimitKept")
    assert [name for _, name in node.sent_signals()] == ["SIGTERM"]
    assert list(node.driver.held()) == [other]


def test_guard_ends_a_fork_before_the_first_process(
    cluster: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of one of two forks suffices, and the first process of the pid namespace remains."""
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
            ((ended_pid, name),) = node.sent_signals()
            assert name == "SIGTERM"
            assert ended_pid in forks - {first}
            assert {*node.driver.held()} == forks - {ended_pid}
            process.kill()


def test_ps_shows_the_enforcer_of_a_limit(cluster: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """ps shows the guard while the plugin runs, and no enforcer after the plugin is killed."""
    node = cluster("kill", grace="300s")
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(node.running.state))
    above = node.pod("above", "alloc", "1001", "hold", recorded=("", 900))
    by_guard = node.pod("kept", "alloc", "1002", "hold", recorded=("", 2000))
    by_driver = node.pod("held", "alloc", "1003", "hold", recorded=("driver", 900))
    eventually(lambda: (node.ps()[above]["guard"] or {}).get("over"), "a mark")
    eventually(lambda: node.ps()[by_guard]["guard"], "a share that is watched")
    shown = node.ps()
    assert [shown[one]["by"] for one in (above, by_guard, by_driver)] == [
        "guard",
        "guard",
        "driver",
    ]
    assert shown[above]["guard"]["over"]["used"] == 1001 * MIB
    assert shown[by_guard]["guard"] == {"limit": 2000 * MIB, "action": "kill", "over": None}
    assert shown[by_driver]["guard"] is None
    node.running.configure(CONFIG.format(action="report", grace="300s"))
    eventually(lambda: node.ps()[above]["by"] == "nobody", "a guard that only reports")
    assert node.ps()[above]["guard"]["over"]["done"] == []
    node.running.configure(CONFIG.format(action="kill", grace="300s"))
    eventually(lambda: node.ps()[above]["by"] == "guard", "one that kills")
    node.running.stop(signal.SIGKILL)
    shown = node.ps()
    assert [shown[one]["by"] for one in (above, by_guard, by_driver)] == [
        "nobody",
        "nobody",
        "driver",
    ]
    assert shown[above]["guard"] is None


def test_container_in_a_cgroup_of_another_name_is_limited(
    cluster: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger has its first process; in a shared cgroup no process is ended.

    The guard waits until both containers of the shared cgroup exist.
    """
    node = cluster("terminate")
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(node.running.state))
    node.running.signal(signal.SIGSTOP)
    for mebibytes in (1002, 1003):
        node.start_in_cgroup(mebibytes, 900, "apps/shared")
    node.running.signal(signal.SIGCONT)
    offender = node.start_in_cgroup(1001, 900, "apps/own")
    culprit = node.pid_of(1001)
    line = node.running.wait_for_log(reason="MemoryLimitExceeded")
    assert (line["container"], line["limit"]) == (offender, 900 * MIB)
    eventually(
        lambda: node.sent_signals() == [(culprit, "SIGTERM")], "the end of the only offender"
    )
    node.running.wait_for_log(reason="MemoryLimitKept")
    assert sorted(node.driver.held().values()) == [1002 * MIB, 1003 * MIB]
    lines = [one for one in node.running.log() if one.get("reason") == "MemoryLimitExceeded"]
    assert [one["container"] for one in lines] == [offender]
    assert [key for key in guard_state.watched() if key[0] != offender] == []


def test_chroot_does_not_hide_the_limit(cluster: Made) -> None:
    """Below chroot(2) no mount of the grant is visible: the limit applies nevertheless."""
    node = cluster("kill")
    node.pod("neighbor", "alloc", "101", "hold")
    offender = node.pod("offender", "alloc", "4005", "hold", is_chrooted=True)
    culprit = node.pid_of(4005)
    assert Path(f"/proc/{culprit}/root/gpu.sock").exists()
    assert not Path(f"/proc/{culprit}/root/proc").exists()
    line = node.running.wait_for_log(reason="MemoryLimitExceeded")
    assert (line["container"], line["limit"]) == (offender, FAIR * MIB)
    assert "hides its mounts" in line["event"]
    assert node.sent_signals() == []


def test_action_report_ends_no_process_and_keeps_its_record(cluster: Made) -> None:
    node = cluster("report")
    offender = node.pod("offender", "alloc", "4003", "hold")
    culprit = node.pid_of(4003)
    eventually(lambda: node.offenders() and node.offenders()[0]["spent"] > 1, "a mark")
    (before,) = node.offenders()
    assert (before["id"], before["used"], before["sent"]) == (offender, 4003 * MIB, [])
    assert node.running.stop() == 0
    node.running.start()
    eventually(lambda: node.offenders()[0]["spent"] > before["spent"], "the grace going on")
    assert node.offenders()[0]["since"] == before["since"]
    assert node.pid_of(4003) == culprit
    assert node.sent_signals() == []
    node.running.configure(CONFIG.format(action="terminate", grace="1s"))
    eventually(lambda: node.sent_signals() == [(culprit, "SIGTERM")], "what is configured now")


def test_guard_needs_the_pids_of_the_host(cluster: Made) -> None:
    node = cluster("kill", grace="0s")
    node.running.stop()
    node.running.prefix = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    node.running.start()
    node.running.kubelet.wait_for_devices(GPU, 4)
    node.pod("offender", "alloc", "4004", "hold")
    culprit = node.pid_of(4004)
    node.running.wait_for_log(reason="LimitsNotWatched", code="GH1885")
    assert node.pid_of(4004) == culprit
    assert node.offenders() == []
    node.running.stop(signal.SIGKILL)  # unshare passes no other signal on
