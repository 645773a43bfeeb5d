# SPDX-License-Identifier: Apache-2.0
"""A device plugin and the DRA drivers on one node never hand out one GPU twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest

from gpuhook.dra.claims.claim import ClaimName
from tests.cluster_api.cluster_server import Cluster
from tests.kubelet.allocated_claims import allocated, named, result
from tests.kubelet.dra_kubelet import DraKubelet
from tests.kubelet.dra_process import DraProcess
from tests.kubelet.dra_running import RunDra, cluster, dra_kubelet, run_dra
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.pod_resources import PodResources, pod
from tests.kubelet.process import GPU, plugin

__all__ = ["cluster", "dra_kubelet", "run_dra"]
DRIVER = "gpu.nvidia.com"
MINE = named("mine")


@dataclass
class Both:
    """A node with both, and a kubelet that tells each what the other has."""

    driver: DraProcess
    dra: DraKubelet
    kubelet: Kubelet
    pods: PodResources
    cluster: Cluster
    claim: ClaimName = MINE

    def uuid(self, minor: int) -> str:
        (found,) = (gpu.uuid for gpu in self.driver.node.node.gpus if gpu.minor == minor)
        return str(found)

    def prepare(self, device: str) -> str:
        """Prepare a claim of a device, and return the error."""
        made = self.cluster.store.add(allocated(MINE, result(device)))
        self.claim = replace(MINE, uid=made["metadata"]["uid"])
        return self.again()

    def again(self) -> str:
        """Prepare the claim, and return the error."""
        return self.dra.prepare(DRIVER, self.claim)[self.claim.uid].error


@pytest.fixture
def both(
    run_dra: RunDra, dra_kubelet: DraKubelet, cluster: Cluster, tmp_path: Path
) -> Iterator[Both]:
    root = dra_kubelet.root
    (root / "pod-resources").mkdir()
    socket = root / "pod-resources/kubelet.sock"
    with Kubelet(root / "device-plugins") as kubelet, PodResources(socket) as pods:
        driver = run_dra("h100x8", GPUHOOK_POD_RESOURCES_SOCKET=str(socket))
        own = {"GPUHOOK_HEALTH_POLL_INTERVAL": "200ms"}
        with plugin(tmp_path / "plugin", driver.node, kubelet, "version: v1\n", own):
            kubelet.wait_for_devices(GPU, 8)
            yield Both(driver, dra_kubelet, kubelet, pods, cluster)


def test_claim_of_an_assigned_gpu_is_refused_until_the_pod_ends(both: Both) -> None:
    both.kubelet.endpoint(GPU).allocate([both.uuid(0)])
    both.pods.pods = [pod("ml", "train-0", "main", GPU, [both.uuid(0)])]
    error = both.prepare("gpu-0")
    assert "GH2640" in error
    assert "container main of pod ml/train-0" in error
    assert "gpuhook.excludeDevices" in error
    both.pods.pods = []
    assert both.again() == ""


def test_claimed_gpu_is_not_assigned_until_the_claim_ends(both: Both) -> None:
    assert both.prepare("gpu-1") == ""
    with pytest.raises(grpc.RpcError) as caught:  # at once: the checkpoint is read in Allocate
        both.kubelet.endpoint(GPU).allocate([both.uuid(1)])
    details = str(caught.value.details())
    assert "GH2642" in details
    assert "claim default/mine has the GPU" in details
    both.kubelet.wait_for_devices(GPU, 7, 1)
    assert both.kubelet.endpoint(GPU).devices[both.uuid(1)].health == "Unhealthy"
    both.driver.kill()  # the claim remains
    with pytest.raises(grpc.RpcError):
        both.kubelet.endpoint(GPU).allocate([both.uuid(1)])
    both.driver.start()
    both.dra.wait_for_registrations(2)
    assert both.dra.unprepare(DRIVER, both.claim)[both.claim.uid].error == ""
    both.kubelet.wait_for_devices(GPU, 8)
    both.kubelet.endpoint(GPU).allocate([both.uuid(1)])
