# SPDX-License-Identifier: Apache-2.0
"""A container with shares of an NVIDIA GPU and of an AMD GPU, from the kubelet to the ledger."""

from __future__ import annotations

from pathlib import Path

from gpuhook.vendors.amd.hot.amd_words import KFD
from tests.contract.amd_installation import beside_nvidia
from tests.contract.bundles import Bundles
from tests.contract.installation import CONTROL, Installation
from tests.contract.kubelet_side import apply_allocation, joined
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import plugin

AMD, NVIDIA = "amd.com/gpu", "nvidia.com/gpu"
SHARED = """\
version: v1
flags: {amd: {deviceListStrategy: [envvar]}}
sharing:
  timeSlicing:
    resources:
    - {name: amd.com/gpu, replicas: 4, memory: fair}
    - {name: nvidia.com/gpu, replicas: 2, memory: fair}
"""


def test_a_container_has_replicas_of_both(
    node8: Installation, kubelet: Kubelet, bundle_of: Bundles, tmp_path: Path
) -> None:
    """No variable of one answer replaces one of the other: the ledger has both replicas."""
    limits = {"onFailure": "start"}
    made = beside_nvidia(tmp_path / "both", "mixed", node8, limits=limits)
    with plugin(tmp_path / "plugin", made.node, kubelet, SHARED):
        kubelet.wait_for_devices(NVIDIA, 2)
        kubelet.wait_for_devices(AMD, 8)
        allocated = [kubelet.allocate(name, 1) for name in (NVIDIA, AMD)]
    allocation = joined(*(one.response for one in allocated))
    ids = [identifier for one in allocated for identifier in one.ids]
    assert sorted(one for name, one in allocation.envs.items() if "REPLICAS" in name) == sorted(ids)
    bundle = bundle_of("debian")
    apply_allocation(allocation, bundle)
    with made.lifecycle(bundle) as container:
        container.start()
        entry = made.entry()
        (holder,) = made.holders()
    assert sorted(entry["replicas"]) == sorted(ids)
    assert sorted(holder["replicas"]) == sorted(ids)
    assert {KFD, *CONTROL, made.device(0)} <= set(entry["nodes"])
    assert {limit["device"] for limit in entry["memory"]} == {
        identifier.partition("::")[0] for identifier in ids
    }
