# SPDX-License-Identifier: Apache-2.0
"""Each capability that the chart adds to the plugin: with it a feature works, without it not."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gpuhook.memory_limits import guard_state
from tests.charts.values import configuration
from tests.contract.guard_cluster import CONFIG, Cluster
from tests.contract.plugin_pod import PluginPod, plugin_pod
from tests.kubelet.process import GPU, TIME_SLICING
from tests.simulated import driver_memory, stub_events, time_slices
from tests.simulated.node import SimulatedNode, make_node
from tests.waiting import eventually

# test_plugin_rights.py runs the pod without a capability in each run.
pytestmark = pytest.mark.thorough

GUARD = CONFIG.format(action="kill", grace="1s")
MIG = "version: v1\nflags: {migStrategy: mixed}\n"


class PodRun:
    """Runs the plugin's pod on a node; `writable` are its directories that are mounts."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self.place = place
        self.stack = stack

    def node(self, profile: str, *writable: str) -> SimulatedNode:
        """Return a node whose directories `writable` are mounts, as /dev is on a real one."""
        made = make_node(self.place / "n", profile)
        for name in writable:
            path = Path(made.host_root) / name
            subprocess.run(["mount", "--bind", path, path], check=True)
            self.stack.callback(subprocess.check_call, ["umount", "--lazy", str(path)])
        return made

    def plugin(
        self,
        node: SimulatedNode,
        text: str,
        *without: str,
        more: tuple[Path, ...] = (),
        **values: Any,
    ) -> PluginPod:
        """Start the pod with this configuration, without some capabilities."""
        running = plugin_pod(
            self.place,
            node,
            configuration(text) | values,
            configs={"default": text},
            without=without,
            more=more,
        )
        return self.stack.enter_context(running)


@pytest.fixture
def pod_run(short_path: Path) -> Iterator[PodRun]:
    with ExitStack() as stack:
        yield PodRun(short_path, stack)


@pytest.fixture
def guarded(
    pod_run: PodRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Cluster]:
    """Return a function: capabilities that are missing, values -> pods on a node with the guard."""

    def start(*without: str, **values: Any) -> Cluster:
        node = pod_run.node("t4")
        driver = pod_run.stack.enter_context(driver_memory.serving(pod_run.place, node))
        more = (driver.socket.parent,)
        values["compatWithCPUManager"] = False  # this machine does not have the node's devices
        running = pod_run.plugin(node, GUARD, *without, more=more, **values)
        running.kubelet.wait_for_devices(GPU, 4)
        monkeypatch.setenv("GPUHOOK_STATE_DIR", str(running.host / "run/gpuhook"))
        made = Cluster(tmp_path, running.process, running.pods, driver)
        pod_run.stack.enter_context(made.stack)
        return made

    return start


@pytest.mark.parametrize("without", [(), ("CAP_KILL",)], ids=["kill", "none"])
def test_guard_ends_processes_of_other_users(
    guarded: Callable[..., Cluster], without: tuple[str, ...]
) -> None:
    """KILL: the processes of most images have a uid other than the plugin's."""
    node = guarded(*without)
    node.pod("offender", "alloc", "4001", "hold", user=1000)
    culprit = node.pid_of(4001)
    if without:
        line = node.running.wait_for_log(reason="NotEnded")
        assert line["code"] == "GH1886"
        assert node.pid_of(4001) == culprit
    else:
        eventually(lambda: node.sent_signals() == [(culprit, "SIGTERM")], "the end of the offender")


@pytest.mark.parametrize("without", [(), ("CAP_SYS_PTRACE",)], ids=["ptrace", "none"])
def test_guard_reads_cgroups_of_other_names(
    guarded: Callable[..., Cluster], without: tuple[str, ...]
) -> None:
    """SYS_PTRACE: the namespaces of a process with more capabilities than the plugin."""
    node = guarded(*without, features={"foreignCgroups": True})
    foreign = node.start_in_cgroup(1001, 900, "apps/own")
    watched = node.pod("offender", "alloc", "4001", "hold", user=1000)
    node.running.wait_for_log(reason="MemoryLimitExceeded", container=watched)
    node.running.wait_for_log(reason="MemoryLimitKept", container=watched)
    ended = {one["container"] for one in node.running.log() if one.get("reason") == "ProcessEnded"}
    assert (foreign in ended) is (not without)
    assert (foreign in {key[0] for key in guard_state.watched()}) is (not without)
    if without:
        line = node.running.wait_for_log(level="warning", container=foreign)
        assert "not watched" in line["event"]


@pytest.mark.parametrize("without", [(), ("CAP_MKNOD",)], ids=["mknod", "none"])
def test_missing_nodes_of_mig_are_created(pod_run: PodRun, without: tuple[str, ...]) -> None:
    """MKNOD: without the driver's tools no program creates the nodes of an instance."""
    node = pod_run.node("a100-mig", "dev")
    first = node.node.gpus[0].instances[0]
    path = Path(f"{node.dev_root}/dev/nvidia-caps/nvidia-cap{first.gpu_instance_minor}")
    path.unlink()
    running = pod_run.plugin(node, MIG, *without)
    if without:
        line = running.process.wait_for_log(reason="GpuUnhealthy")
        assert "GH1246" in line["event"]
        assert not path.exists()
    else:
        eventually(path.is_char_device, "the node of the instance")


@pytest.mark.parametrize("without", [(), ("CAP_SYS_ADMIN",)], ids=["admin", "none"])
@pytest.mark.parametrize("policy", ["timeSlice: long", "computeMode: default"])
def test_policies_of_the_driver_are_set(
    pod_run: PodRun, policy: str, without: tuple[str, ...]
) -> None:
    """SYS_ADMIN: the kernel module requires it."""
    node = pod_run.node("t4", "usr")
    driver = time_slices.install(node)
    stub_events.say(node, str(node.node.gpus[0].uuid), "compute_mode 3")
    running = pod_run.plugin(node, f"{TIME_SLICING}      {policy}\n", *without)
    if without:
        line = running.process.wait_for_log(reason="PolicyNotSet")
        assert line["code"] in ("GH1263", "GH1877")
        running.kubelet.wait_for_devices(GPU, 4)
        assert driver.now() == ["default"]
    else:
        running.process.wait_for_log(reason="PolicySet")
