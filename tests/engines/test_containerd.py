# SPDX-License-Identifier: Apache-2.0
"""Pods of containerd of each release: the device plugin's strategies, CDI, live commands, restarts.

The `nvidia` handler is the one that `gpuhook configure containerd` wrote; the allocations are
those of the node's device plugin, by the kubelet's protocol.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product
from uuid import uuid4

import grpc
import pytest

from gpuhook.device_plugin.allocate.container_allocation import Allocation
from tests.contract.cri import IMAGE, Cri
from tests.contract.kubelet_side import allocation_of
from tests.contract.views import questions, view
from tests.engines.containerd import (
    SLEEP,
    configured,
    containerd,
    gpus,
    holders,
    is_before,
    requests,
    version,
)
from tests.engines.engine_node import EngineNode, low_level_runtime
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import GPU, TIME_SLICING

STRATEGIES = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
MOUNTS = "request: {acceptVolumeMounts: true}\n"
Covers = Callable[..., None]


@pytest.fixture(scope="module")
def allocations(node: EngineNode) -> dict[str, Allocation]:
    """Return the device plugin's answer of each strategy for a replica of GPU 2."""
    node.path("/srv/plugin.yaml").write_text(TIME_SLICING, encoding="utf-8")
    uuid = node.gpus.node.gpus[2].uuid
    answers = {}
    with Kubelet(node.path("/var/lib/kubelet/device-plugins")) as kubelet:
        for strategy in STRATEGIES:
            command = ["gpuhook", "device-plugin", "--config-file", "/srv/plugin.yaml"]
            command += ["--device-list-strategy", strategy, "--metrics-address", ""]
            with node.daemon(command, lambda: kubelet.allocatable(GPU) == 32):
                (answer,) = kubelet.endpoint(GPU).allocate([f"{uuid}::1"]).container_responses
                answers[strategy] = allocation_of(answer)
    return answers


@pytest.fixture(scope="module")
def server(node: EngineNode) -> Iterator[Cri]:
    """Yield a containerd with the configured handler `nvidia`."""
    with configured(node), containerd(node) as running:
        yield running


@pytest.mark.parametrize("how", [*product(STRATEGIES[:3], ("runc", "crun"))], ids="-".join)
def test_handler_assigns_the_allocated_gpu(
    node: EngineNode,
    server: Cri,
    allocations: dict[str, Allocation],
    how: tuple[str, str],
    covers: Covers,
) -> None:
    """A pod of the handler has the replica that the plugin allocated, with its driver."""
    strategy, low_level = how
    with low_level_runtime(node, low_level, MOUNTS) as program, server.pod("trainer") as pod:
        asked = questions(runs=[["/dlprobe", "libcuda.so.1"]])
        seen = server.view(pod, allocations[strategy], *asked)
        server.container(pod, SLEEP, allocations[strategy], name="sleeper")
        (holder,) = holders(node, "trainer")
    assert gpus(seen) == {node.device(2)}
    assert "real" in seen.runs[0].found()["libcuda.so.1"]
    uuid = node.gpus.node.gpus[2].uuid
    assert (holder["gpus"], holder["replicas"]) == ([uuid], [f"{uuid}::1"])
    covers("containerd", version(node), f"RuntimeClass, {strategy}", program)


@pytest.mark.parametrize("how", [*product(STRATEGIES[2:], ("nvidia", ""))], ids="-".join)
def test_containerd_applies_the_plugins_spec(
    node: EngineNode,
    server: Cri,
    allocations: dict[str, Allocation],
    how: tuple[str, str],
    covers: Covers,
) -> None:
    """From 1.7 on, a CDI name in the CRI's field or in an annotation needs no handler."""
    strategy, handler = how
    is_old = is_before(node, 1, 7)
    by_wrapper = (strategy, handler) == ("cdi-annotations", "nvidia")
    with server.pod("named", handler) as pod:
        seen = server.view(pod, allocations[strategy])
        server.container(pod, SLEEP, allocations[strategy], name="sleeper")
        listed = holders(node, "named")
    if is_old and not by_wrapper:
        assert (seen.gpus(), listed) == ({}, [])
        return
    assert gpus(seen) == {node.device(2)}
    uuid = node.gpus.node.gpus[2].uuid
    assert [(one["gpus"], one["replicas"]) for one in listed] == [([uuid], [f"{uuid}::1"])]
    integration = f"{strategy} with RuntimeClass" if handler else strategy
    covers("containerd", version(node), integration)


def test_containers_of_a_pod_have_their_own_gpus(node: EngineNode, server: Cri) -> None:
    """An init container, two containers with a GPU each, and a sidecar without one."""
    with server.pod("several") as pod:
        assert gpus(server.view(pod, requests("1"), name="init")) == {node.device(1)}
        first = server.container(pod, SLEEP, requests("2"), name="first")
        second = server.container(pod, SLEEP, requests("3,4"), name="second")
        assert gpus(server.exec(first, "/probe").view) == {node.device(2)}
        assert gpus(server.exec(second, "/probe").view) == {node.device(3), node.device(4)}
        assert server.view(pod, Allocation(), name="sidecar").gpus() == {}
        listed = {one["container"]: one["requested"] for one in holders(node, "several")}
    assert listed == {"first": ["2"], "second": ["3", "4"]}


def test_container_without_a_request_is_unchanged(node: EngineNode, server: Cri) -> None:
    """It has the mounts and the variables that it has by the default handler."""
    seen = {}
    for handler in ("nvidia", ""):
        with server.pod("plain", handler) as pod:
            seen[handler] = server.view(pod, Allocation())
    assert seen["nvidia"].gpus() == {}
    assert seen["nvidia"].nodes.keys() == seen[""].nodes.keys()
    assert seen["nvidia"].mounts.keys() == seen[""].mounts.keys()
    assert seen["nvidia"].env == seen[""].env


def test_refused_request_reaches_the_kubelet(node: EngineNode, server: Cri) -> None:
    """The CRI's error, which the kubelet shows as an event, has gpuhook's code and reason."""
    with server.pod("refused") as pod, pytest.raises(grpc.RpcError) as caught:
        server.container(pod, SLEEP, requests("9"))
    assert re.search(r"GH\d{4}: .*nvidia\.com/gpu=9", str(caught.value))
    assert holders(node, "refused") == []


def test_exec_and_restart_of_a_container(node: EngineNode, server: Cri) -> None:
    """`kubectl exec` has the GPU, and so has the container that the kubelet starts next."""
    with server.pod("again") as pod:
        first = server.container(pod, SLEEP, requests("2"))
        assert gpus(server.exec(first, "/probe").view) == {node.device(2)}
        server.stop(first)
        assert holders(node, "again") == []
        second = server.container(pod, SLEEP, requests("2"), attempt=1)
        assert gpus(server.exec(second, "/probe").view) == {node.device(2)}
        assert [one["id"] for one in holders(node, "again")] == [second.id]


@pytest.mark.parametrize("low_level", ["runc", "crun"])
def test_ctr_runs_gpuhook_runtime(
    node: EngineNode, server: Cri, low_level: str, covers: Covers
) -> None:
    with low_level_runtime(node, low_level) as program:
        words = ["--runc-binary", "/usr/bin/gpuhook-runtime", "--env", "NVIDIA_VISIBLE_DEVICES=2"]
        seen = view(ctr_run(node, *words))
    assert gpus(seen) == {node.device(2)}
    covers("containerd", version(node), "ctr run --runc-binary", program)


def test_ctr_applies_the_spec(node: EngineNode, server: Cri, covers: Covers) -> None:
    """`ctr run --device` takes a CDI name in containerd 2, and paths only in older ones."""
    option = ("--device", "nvidia.com/gpu=2")
    if is_before(node, 2):
        with pytest.raises(AssertionError, match="error stating device path"):
            ctr_run(node, *option)
        return
    assert gpus(view(ctr_run(node, *option))) == {node.device(2)}
    covers("containerd", version(node), "ctr run --device")


def ctr_run(node: EngineNode, *options: str) -> str:
    """Return the output of the probe in a container of ctr."""
    words = ["ctr", "run", "--rm", "--fifo-dir", "/tmp/fifo", *options, IMAGE]
    try:
        return node.check(*words, f"test-{uuid4().hex[:12]}", "/probe")
    finally:
        node.check("rm", "-rf", "/tmp/fifo")
