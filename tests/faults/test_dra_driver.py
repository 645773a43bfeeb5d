# SPDX-License-Identifier: Apache-2.0
"""The process of the DRA drivers: kills at each step, a slow API server, growth, a rolling update."""

from __future__ import annotations

import os

import grpc
import pytest

from tests import depth
from tests.cluster_api.cluster_server import Cluster
from tests.kubelet.allocated_claims import allocated, named, result
from tests.kubelet.dra_kubelet import DraKubelet
from tests.kubelet.dra_process import DraProcess
from tests.kubelet.dra_running import RunDra, cluster, dra_kubelet, run_dra

__all__ = ["cluster", "dra_kubelet", "run_dra"]
DRIVER = "gpu.nvidia.com"
A, B, C = named("a"), named("b"), named("c")
_STEPS = 22  # file operations of a prepare, and more: a call without a kill is a case, too


@pytest.fixture
def claims(cluster: Cluster) -> None:
    """Add three claims, of GPU 0 to 2."""
    for number, name in enumerate((A, B, C)):
        cluster.store.add(allocated(name, result(f"gpu-{number}")))


def kill_in_call(driver: DraProcess, kubelet: DraKubelet, call: str) -> bool:
    """Call for claim B with kills armed, and return whether the driver was killed."""
    kubelet.plugin(DRIVER)
    driver.armed.touch()
    try:
        found = getattr(kubelet, call)(DRIVER, B)
        assert found[B.uid].error == ""
    except grpc.RpcError:
        driver.ended()
        return True
    finally:
        driver.armed.unlink()
    driver.kill()  # between the checkpoint and what the kubelet does with the answer
    return False


STEPS = depth.cases(_STEPS, every=5) if hasattr(depth, "cases") else range(_STEPS)


@pytest.mark.parametrize("step", range(_STEPS))
@pytest.mark.parametrize("call", ["prepare", "unprepare"])
def test_a_killed_driver_is_recovered(
    run_dra: RunDra, dra_kubelet: DraKubelet, claims: None, call: str, step: int
) -> None:
    driver = run_dra()
    first = dra_kubelet.prepare(DRIVER, A)
    if call == "unprepare":
        dra_kubelet.prepare(DRIVER, B)
    driver.kill()
    driver.kill_at = step
    driver.start()
    dra_kubelet.wait_for_registrations(2)
    kill_in_call(driver, dra_kubelet, call)
    driver.kill_at = None
    driver.start()
    dra_kubelet.wait_for_registrations(3)
    assert dra_kubelet.prepare(DRIVER, A) == first
    again = getattr(dra_kubelet, call)(DRIVER, B)
    assert again[B.uid].error == ""
    wanted = {A, B} if call == "prepare" else {A}
    assert driver.specs() == sorted(f"gpuhook-{DRIVER}-claim_{one.uid}.yaml" for one in wanted)
    left = [one for one in os.listdir(dra_kubelet.plugins / DRIVER) if one.endswith(".tmp")]
    assert left == []
    assert [one.error for one in dra_kubelet.unprepare(DRIVER, A, B).values()] == ["", ""]
    assert driver.specs() == []
