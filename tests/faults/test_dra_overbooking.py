# SPDX-License-Identifier: Apache-2.0
"""The driver refuses what a scheduler allocates that does not know the claims of another form."""

from __future__ import annotations

import signal

from tests.cluster_api.cluster_server import Cluster
from tests.kubelet.allocated_claims import Document, result, stored, uid_of
from tests.kubelet.dra_kubelet import DraKubelet
from tests.kubelet.dra_running import RunDra, cluster, dra_kubelet, run_dra
from tests.waiting import eventually

__all__ = ["cluster", "dra_kubelet", "run_dra"]
DRIVER = "gpu.nvidia.com"
SHARED = """version: v1
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2, memory: fair}]}}
gpuhook: {guard: {action: kill}}
"""


def share(number: int) -> Document:
    consumed = {"memory": "20Gi", "slots": "1"}
    return result("gpu-0", shareID=uid_of(str(number)), consumedCapacity=consumed)


def test_claims_of_a_former_form_are_counted(
    run_dra: RunDra, dra_kubelet: DraKubelet, cluster: Cluster
) -> None:
    driver = run_dra(text=SHARED)
    eventually(cluster.store.slices)
    old = stored(cluster, "old", result("gpu-0-s0"))  # of a server without shared devices
    claims = [stored(cluster, f"new{number}", share(number)) for number in range(2)]
    errors = [dra_kubelet.prepare(DRIVER, one)[one.uid].error for one in (old, *claims)]
    assert errors[:2] == ["", ""]
    assert "GH2625" in errors[2]
    assert "3 of 2 slots: default/old, default/new0, default/new1" in errors[2]
    assert not [one for one in driver.specs() if claims[1].uid in one]
    assert dra_kubelet.unprepare(DRIVER, old)[old.uid].error == ""
    assert dra_kubelet.prepare(DRIVER, claims[1])[claims[1].uid].error == ""


def test_a_whole_gpu_is_not_given_while_claims_have_slots(
    run_dra: RunDra, dra_kubelet: DraKubelet, cluster: Cluster
) -> None:
    driver = run_dra(text=SHARED)
    eventually(cluster.store.slices)
    old, whole = stored(cluster, "old", result("gpu-0-s0")), stored(cluster, "w", result("gpu-0"))
    assert dra_kubelet.prepare(DRIVER, old)[old.uid].error == ""
    driver.configure("version: v1\n")
    driver.signal(signal.SIGHUP)
    eventually(lambda: "allowMultipleAllocations" not in str(cluster.store.slices()))
    error = dra_kubelet.prepare(DRIVER, whole)[whole.uid].error
    assert "GH2606" in error
    assert "default/old has it" in error


def test_a_renewed_spec_never_loses_its_limit(
    run_dra: RunDra, dra_kubelet: DraKubelet, cluster: Cluster
) -> None:
    """The configuration excludes the device of a prepared claim, and then the spec is lost."""
    driver = run_dra(text=SHARED)
    eventually(cluster.store.slices)
    (one,) = cluster.store.slices()
    uuid = next(d for d in one["spec"]["devices"] if d["name"] == "gpu-0")["attributes"]["uuid"]
    claim = stored(cluster, "a", result("gpu-0-s0"))
    assert dra_kubelet.prepare(DRIVER, claim)[claim.uid].error == ""
    path = next(driver.cdi / name for name in driver.specs() if claim.uid in name)
    assert ",hard=" in path.read_text()
    driver.configure(
        SHARED.replace("gpuhook: {", f"gpuhook: {{excludeDevices: [{uuid['string']}], ")
    )
    driver.signal(signal.SIGHUP)
    eventually(lambda: len(cluster.store.slices()[0]["spec"]["devices"]) == 7)
    path.unlink()
    assert "GH2605" in dra_kubelet.prepare(DRIVER, claim)[claim.uid].error
    assert not path.exists()
    driver.configure(SHARED)
    driver.signal(signal.SIGHUP)
    eventually(path.exists)
    assert ",hard=" in path.read_text()
