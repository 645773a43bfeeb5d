# SPDX-License-Identifier: Apache-2.0
"""The device plugin on a real driver: it offers replicas, and their containers get the GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.contract import roots
from tests.contract.bundles import bundle
from tests.contract.installation import Installation
from tests.contract.kubelet_side import allocation_of, apply_allocation
from tests.gpu.test_real_gpu import real
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import GPU, plugin
from tests.kubelet.running import kubelet

__all__ = ["kubelet", "real"]
pytestmark = [pytest.mark.gpu, pytest.mark.contract]
UUID = re.compile(r"GPU-[0-9a-f-]{36}")


def test_pod_with_a_replica_gets_the_gpu(
    real: Installation, kubelet: Kubelet, tmp_path: Path
) -> None:
    """The plugin has NVML's facts and events; its answer gives a container the GPU."""
    count = 4 * len(real.node.node.gpus)
    with plugin(tmp_path / "plugin", real.node, kubelet) as running:
        kubelet.wait_for_devices(GPU, count)
        answer = kubelet.allocate(GPU, 1).response
        root = roots.copy("debian", tmp_path / "root")
        made = bundle(tmp_path / "bundle", root, ["nvidia-smi", "-L"])
        apply_allocation(allocation_of(answer), made)
        result = real.run(made)
        assert UUID.findall(result.stdout) == [answer.envs["NVIDIA_VISIBLE_DEVICES"]], result
        metrics = running.metrics()
        assert f'gpuhook_replicas{{resource="{GPU}",state="healthy"}} {count}.0' in metrics
        warnings = [line for line in running.log() if line.get("level") in ("warning", "error")]
        assert warnings == []
        assert running.stop() == 0
