# SPDX-License-Identifier: Apache-2.0
"""Shares of a GPU by the driver as a process, in containers of podman, and in the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster_api.cluster_server import Cluster
from tests.contract import engines
from tests.contract.installation import Installation
from tests.contract.integrations import MKNOD
from tests.contract.limiting import entry
from tests.contract.roots import Roots
from tests.kubelet.allocated_claims import result, stored, uid_of
from tests.kubelet.dra_kubelet import DraKubelet
from tests.kubelet.dra_process import DraProcess, dra_process
from tests.kubelet.dra_running import cluster, dra_kubelet
from tests.unit.dra.pool.test_sharing_form import FAIR
from tests.waiting import eventually

__all__ = ["cluster", "dra_kubelet"]
pytestmark = pytest.mark.contract
DRIVER = "gpu.nvidia.com"
SHARE = uid_of("share")


@pytest.fixture
def driver(
    mine: Installation, tmp_path: Path, dra_kubelet: DraKubelet, cluster: Cluster
) -> Iterator[DraProcess]:
    env = {
        "NVIDIA_DRIVER_ROOT": mine.node.driver_root,
        "NVIDIA_CDI_HOOK_PATH": str(mine.bindir / "gpuhook-hook"),
    }
    place = tmp_path / "driver"
    with dra_process(place, mine.node, dra_kubelet, cluster, FAIR, env=env) as running:
        yield running


def test_a_share_from_the_slice_to_the_status(
    driver: DraProcess,
    mine: Installation,
    dra_kubelet: DraKubelet,
    cluster: Cluster,
    root_of: Roots,
) -> None:
    """The default of the published policy is the limit, and the status has it."""
    gpu = next(one for one in mine.node.node.gpus if one.minor == 2)
    eventually(cluster.store.slices, "the slices of the driver")
    devices: list[Any] = [
        one for part in cluster.store.slices() for one in part["spec"].get("devices", [])
    ]
    published = next(one for one in devices if one["name"] == "gpu-2")
    memory = published["capacity"]["memory"]["requestPolicy"]["default"]
    assert published["attributes"]["resource"] == {"string": "nvidia.com/gpu"}
    share: dict[str, Any] = {"shareID": SHARE, "consumedCapacity": {"memory": memory, "slots": "1"}}
    claim = stored(cluster, "shared", result("gpu-2", **share))
    answer = dra_kubelet.prepare(DRIVER, claim)[claim.uid]
    assert answer.error == ""
    (device,) = answer.devices
    assert device.share_id == SHARE
    view = engines.podman(
        driver.place / "podman",
        root_of("debian"),
        ["/probe"],
        [*MKNOD, "--device", device.cdi_device_ids[0]],
        cdi=driver.cdi,
        state=mine.state,
    ).view
    mebibytes = ((gpu.memory_bytes or 0) - (256 << 20)) // 4 >> 20
    assert view.values("NVIDIA_GPU_MEMORY_LIMIT") == [str(mebibytes)]

    def statuses() -> list[Any]:
        found = cluster.store.get("resourceclaims", "shared", "default")
        return list(found["status"].get("devices", []))

    eventually(statuses, "the status of the claim")
    (status,) = statuses()
    assert status["shareID"] == SHARE
    assert status["data"]["uuid"] == gpu.uuid
    assert status["data"]["memoryLimit"].rstrip("MiG").isdecimal()
    assert status["conditions"][0]["type"] == "Ready"
    recorded = entry(mine)
    assert recorded["replicas"] == [f"{gpu.uuid}::0"]
    assert [one["share"] for one in recorded["claims"]] == [SHARE]
    assert dra_kubelet.unprepare(DRIVER, claim)[claim.uid].error == ""
