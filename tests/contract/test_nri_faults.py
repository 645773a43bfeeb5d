# SPDX-License-Identifier: Apache-2.0
"""What becomes of containers if the plugin stops, dies or is there twice, with real containerds.

The runtime drops a plugin that does not answer, and creates the container without it. NRI has
nothing against that; the next plugin reports the containers that started so.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from gpuhook.device_plugin.allocate.container_allocation import Allocation
from gpuhook.nri.policy.pod_annotations import PREFIX
from tests.contract.cri import Container, Pod
from tests.contract.installation import KIND, Installation
from tests.contract.nri_node import SUITES, NriNode, nri_node
from tests.contract.runtimes import SECONDS
from tests.contract.views import View
from tests.nri.nri_plugin import NriPlugin, nri_plugin
from tests.waiting import eventually

_STARTED_WITHOUT, _IN_USE = "GH2707", "GH2702"


@pytest.fixture(scope="module", params=SUITES)
def node(
    request: pytest.FixtureRequest, node8: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NriNode]:
    """Yield a node with the containerd of a release, and no plugin."""
    with nri_node(node8, tmp_path_factory.mktemp("nri"), str(request.param)) as made:
        yield made


def asking(node: NriNode, pod: Pod, name: str = "main") -> Allocation:
    """Return what a device plugin assigned to a container: GPU 2."""
    return node.assign(pod, str(node.node.gpu(2).uuid), name)


def inside(node: NriNode, container: Container) -> View:
    """Return the probe's view in a running container."""
    return node.cri.exec(container, "/probe").view


def reported(plugin: NriPlugin, container: Container) -> bool:
    """Return whether a plugin has reported that a container started without its GPU."""
    return any(
        (line.get("code"), line.get("id")) == (_STARTED_WITHOUT, container.id)
        for line in plugin.lines()
    )


def requires_gpu(node: NriNode, pod: str = "again") -> None:
    """Assert that the next container has its GPU."""
    assert node.node.device(2) in node.view(str(node.node.gpu(2).uuid), pod=pod).gpus()


def test_container_without_a_plugin_is_reported_by_the_next_one(node: NriNode) -> None:
    """As at boot, if the kubelet starts containers first."""
    with node.cri.pod("early", "runc") as pod:
        early = node.sleeping(pod, asking(node, pod))
        other = node.sleeping(pod, Allocation(), "other")
        assert inside(node, early).gpus() == {}
        with node.plugin() as plugin:
            eventually(lambda: reported(plugin, early), "the report")
            assert not reported(plugin, other)


def test_stopped_plugin(node: NriNode) -> None:
    """The runtime waits, drops it, and creates the container; the plugin connects again, and
    reports it, although it has decided on the container meanwhile.
    """
    with node.plugin() as plugin, node.cri.pod("slow", "runc") as pod:
        os.kill(plugin.process.pid, signal.SIGSTOP)
        try:
            started = node.sleeping(pod, asking(node, pod))
        finally:
            os.kill(plugin.process.pid, signal.SIGCONT)
        assert inside(node, started).gpus() == {}
        plugin.wait_for("ready", 2)
        eventually(lambda: reported(plugin, started), "the report")
        requires_gpu(node)


def test_plugin_killed_while_a_container_waits(node: NriNode) -> None:
    """The container starts without. No half of an answer is applied, and the next plugin works."""
    with node.cri.pod("killed", "runc") as pod:
        with ThreadPoolExecutor(1) as pool, node.plugin() as plugin:
            os.kill(plugin.process.pid, signal.SIGSTOP)
            starting = pool.submit(node.sleeping, pod, asking(node, pod))
            eventually(lambda: asked(node, plugin), "the runtime's call")
            plugin.process.kill()
            started = starting.result()
        view = inside(node, started)
        assert view.gpus() == {}
        assert view.values("NVIDIA_VISIBLE_DEVICES") == [str(node.node.gpu(2).uuid)]
        with node.plugin() as following:
            eventually(lambda: reported(following, started), "the report")
            requires_gpu(node)


def asked(node: NriNode, plugin: NriPlugin) -> bool:
    """Return whether the runtime has written to a plugin that reads nothing."""
    for link in Path(f"/proc/{plugin.process.pid}/fd").iterdir():
        with suppress(OSError):
            target = link.readlink()
            if str(target).startswith("socket:") and _waiting(str(target)[8:-1]):
                return True
    return False


def _waiting(inode: str) -> bool:
    """Return whether a Unix socket has bytes to read, by `ss`."""
    command = ["ss", "--unix", "--all", "--numeric", "--no-header"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = map(str.split, done.stdout.splitlines())
    return any(inode in line[5:8] and int(line[2]) > 0 for line in lines)


def test_second_instance_ends(node: NriNode) -> None:
    """Both would be asked about each container."""
    with node.plugin() as plugin:
        other = replace(node.node, place=node.node.place.with_name("second"))
        other.place.mkdir()
        env = {"GPUHOOK_STATE_DIR": str(node.node.state), "GPUHOOK_CONFIG": str(node.node.config)}
        with nri_plugin(other, node.socket, env=env) as second:
            assert second.process.wait(SECONDS) != 0
        assert _IN_USE in second.text()
        assert plugin.process.poll() is None
        requires_gpu(node)


def test_two_plugins_of_different_state(node: NriNode, tmp_path: Path) -> None:
    """Neither knows the other's lock. The second one sees that a container has its GPU, but not the
    CDI names of the first: then the runtime names both.
    """
    nri = {"namespaces": ["chosen"]}
    other = replace(node, node=node.node.apart(tmp_path / "other", nri=nri))
    notes = {f"{PREFIX}/pod": f"{KIND}=3"}
    with node.plugin() as plugin, other.plugin("--name", "other", "--index", "20"):
        requires_gpu(node, "twice")
        with node.cri.pod("noted", "runc", "chosen", notes) as pod:
            if plugin.lines("injected")[-1]["mode"] == "expanded":
                view = node.cri.view(pod, Allocation())
                assert node.node.device(3) in view.gpus()
                return
            with pytest.raises(grpc.RpcError, match="both tried to set") as caught:
                node.cri.view(pod, Allocation())
    assert all(name in str(caught.value) for name in ("gpuhook", "other", f"{KIND}=3"))


@pytest.mark.parametrize("suite", SUITES)
def test_runtime_restarts(suite: str, node8: Installation, tmp_path: Path) -> None:
    """The plugin connects again; a running container keeps its GPU, and is not reported."""
    with nri_node(node8, tmp_path, suite) as node:
        pod = node.cri.start_pod("kept", "runc")
        running = node.sleeping(pod, asking(node, pod))
        assert inside(node, running).gpus() == {}
        plugin = node.plugin()
        made = plugin.__enter__()
        kept = node.sleeping(pod, asking(node, pod, "kept"), "kept")
        assert node.node.device(2) in inside(node, kept).gpus()
    try:
        with nri_node(node8, tmp_path, suite) as again:
            made.wait_for("ready", 2)
            assert again.node.device(2) in inside(again, kept).gpus()
            assert not reported(made, kept)
            requires_gpu(again)
            again.cri.remove_pod(pod)
    finally:
        plugin.__exit__(None, None, None)
