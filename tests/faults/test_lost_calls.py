# SPDX-License-Identifier: Apache-2.0
"""The kubelet ends within a call, or the API server within a prepare, and comes back.

The repeated call has the same answer; nothing is prepared twice, and nothing is left.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc
import pytest

from gpuhook.dra.claims.claim import ClaimName
from tests.cluster_api.cluster_server import Cluster, Fault
from tests.kubelet.allocated_claims import result, stored
from tests.kubelet.dra_kubelet import DraKubelet
from tests.kubelet.dra_process import DraProcess
from tests.kubelet.dra_running import RunDra, cluster, dra_kubelet, run_dra
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.plugin import Plugin, resource
from tests.kubelet.process import GPU
from tests.kubelet.running import Run
from tests.waiting import eventually

__all__ = ["cluster", "dra_kubelet", "run_dra"]
DRIVER = "gpu.nvidia.com"


class LostCall:
    """A call of the kubelet in a thread; it has no answer when the kubelet has gone."""

    def __init__(self, call: Callable[..., object], *arguments: Any) -> None:
        self.answer: object = None
        self._thread = threading.Thread(target=self._run, args=(call, *arguments))
        self._thread.start()

    def _run(self, call: Callable[..., object], *arguments: Any) -> None:
        with suppress(grpc.RpcError, ValueError):  # ValueError: the channel is closed
            self.answer = call(*arguments)

    def assert_lost(self) -> None:
        """Wait for its end; it must have no answer."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert self.answer is None


def checks() -> int:
    """Return the number of threads that check the start of a container."""
    return sum(one.name == "gpuhook-pre-start" for one in threading.enumerate())


def test_kubelet_ends_while_the_driver_is_asked(kubelet: Kubelet) -> None:
    """One thread asks a driver that does not answer, whatever the number of calls."""
    with Plugin(kubelet.directory, pre_start=True) as plugin:
        plugin.offer(resource())
        plugin.answers.hangs = threading.Event()
        for _ in range(3):
            kubelet.wait_for_devices(GPU, 4)
            plugin.answers.waits.clear()
            lost = LostCall(kubelet.endpoint(GPU).pre_start, ["GPU-0::0"])
            eventually(checks, "the check")
            kubelet.kill()
            lost.assert_lost()
            kubelet.start()
        kubelet.wait_for_devices(GPU, 4)
        assert checks() == 1
        again = threading.Thread(target=kubelet.endpoint(GPU).pre_start, args=(["GPU-0::0"],))
        again.start()
        plugin.answers.hangs.set()
        again.join(60)
        assert plugin.observed.count("pre_started") == 1
        eventually(lambda: checks() == 0, "the check's end")


@pytest.mark.thorough
def test_kubelet_ends_within_allocate(run: Run, kubelet: Kubelet) -> None:
    """The plugin is stopped meanwhile: it gets the call when the kubelet has gone."""
    running = run("t4")
    kubelet.wait_for_devices(GPU, 4)
    first = kubelet.allocate(GPU, 1)
    for is_restart in (True, False):
        endpoint = kubelet.endpoint(GPU)
        running.signal(signal.SIGSTOP)
        lost = LostCall(endpoint.allocate, first.ids)
        kubelet.stop() if is_restart else kubelet.kill()
        lost.assert_lost()
        running.signal(signal.SIGCONT)
        kubelet.start()
        kubelet.wait_for_devices(GPU, 4)
        (found,) = kubelet.endpoint(GPU).allocate(first.ids).container_responses
        assert found == first.response
    assert not [line for line in running.log() if line.get("level") == "error"]
    assert running.stop() == 0


@pytest.fixture
def name(cluster: Cluster) -> ClaimName:
    return stored(cluster, "c0", result("gpu-0"))


def lose_kubelet(
    driver: DraProcess, kubelet: DraKubelet, cluster: Cluster, name: ClaimName
) -> None:
    """End the kubelet while a prepare waits for the API server, and start it."""
    kubelet.plugin(DRIVER)
    eventually(cluster.store.slices)
    before = cluster.count("get", plural="resourceclaims")
    cluster.faults.append(Fault("get", "resourceclaims", pause=3))
    lost = LostCall(kubelet.prepare, DRIVER, name)
    eventually(lambda: cluster.count("get", plural="resourceclaims") > before, "the read")
    kubelet.stop()
    lost.assert_lost()
    assert driver.specs() == []
    kubelet.start()


def assert_nothing_left(driver: DraProcess, kubelet: DraKubelet, name: ClaimName) -> None:
    """End the claim; then nothing is of it, and another claim can have its GPU."""
    assert kubelet.unprepare(DRIVER, name)[name.uid].error == ""
    assert driver.specs() == []
    checkpoint = kubelet.plugins / DRIVER / "gpuhook-claims.json"
    assert name.uid not in checkpoint.read_text(encoding="utf-8")
    assert not [line for line in driver.log() if line.get("level") == "error"]
    assert not [line for line in driver.log() if "text" in line]


def test_kubelet_ends_within_prepare(
    run_dra: RunDra, dra_kubelet: DraKubelet, cluster: Cluster, name: ClaimName
) -> None:
    """The next call gets the result of the first: the claim is read once, and has one spec."""
    driver = run_dra("t4")
    dra_kubelet.plugin(DRIVER)
    lose_kubelet(driver, dra_kubelet, cluster, name)
    found = dra_kubelet.prepare(DRIVER, name)[name.uid]
    assert found.error == ""
    assert dra_kubelet.prepare(DRIVER, name)[name.uid] == found
    assert len(driver.specs()) == 1
    assert_nothing_left(driver, dra_kubelet, name)


@pytest.mark.thorough
def test_kubelet_ends_within_prepare_and_the_pod_is_gone(
    run_dra: RunDra, dra_kubelet: DraKubelet, cluster: Cluster, name: ClaimName
) -> None:
    """The kubelet ends the claim, of which it has had no answer."""
    driver = run_dra("t4")
    lose_kubelet(driver, dra_kubelet, cluster, name)
    assert_nothing_left(driver, dra_kubelet, name)
    other = stored(cluster, "c1", result("gpu-0"))
    assert dra_kubelet.prepare(DRIVER, other)[other.uid].error == ""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault("get", "resourceclaims", count=1000, is_lost=True), "GH1862"),
        (Fault("get", "resourceclaims", count=1000, pause=12), "GH1862"),
        (Fault("get", "resourceclaims", count=1000, status=429), "GH1864"),
        (Fault("get", "resourceclaims", count=1000, status=500), "GH1864"),
        (Fault("get", "resourceclaims", count=1000, status=503), "GH1864"),
    ],
    ids=["reset", "timeout", "429", "500", "503"],
)
def test_api_server_ends_within_prepare(
    run_dra: RunDra,
    dra_kubelet: DraKubelet,
    cluster: Cluster,
    name: ClaimName,
    fault: Fault,
    code: str,
) -> None:
    """The error says what to do; the call of a kubelet that tries again succeeds."""
    driver = run_dra("t4")
    dra_kubelet.plugin(DRIVER)
    eventually(cluster.store.slices)
    cluster.faults.append(fault)
    error = dra_kubelet.prepare(DRIVER, name)[name.uid].error
    assert error.startswith(f"{code}: ")
    assert error.endswith(")")  # the hint
    assert "\n" not in error
    assert driver.specs() == []
    cluster.faults.remove(fault)
    assert dra_kubelet.prepare(DRIVER, name)[name.uid].error == ""
    assert len(driver.specs()) == 1
    assert_nothing_left(driver, dra_kubelet, name)
