# SPDX-License-Identifier: Apache-2.0
"""The values and pods of packaging/release/kind, with a kubelet of the tests instead of kind's."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.charts.rendering import ROOT, one, rendered, variables
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import GPU, plugin
from tests.simulated.node import make_node

PLACE = ROOT / "packaging/release"
# Paths of the pod, and its name from the API server: the process of the test has its own.
OF_THE_POD = {"CONFIG_FILE_SRCDIR", "DEFAULT_CONFIG", "CONTAINER_DRIVER_ROOT", "NODE_NAME"}


@pytest.fixture
def kubelet(plugins_path: Path) -> Kubelet:
    return Kubelet(plugins_path)


def test_pods_share_the_simulated_gpu(kubelet: Kubelet, tmp_path: Path) -> None:
    """The plugin offers four replicas on a node without a driver; two pods get the same GPU."""
    values = yaml.safe_load((PLACE / "kind-values.yaml").read_text("utf-8"))
    objects = rendered(values)
    config = one(objects, "ConfigMap")["data"]["default"]
    env = {name: text for name, text in variables(objects).items() if name not in OF_THE_POD}
    env["GPUHOOK_LABELS"] = "false"  # NFD's directory and the API server are the cluster's
    pods = list(yaml.safe_load_all((PLACE / "kind-pods.yaml").read_text("utf-8")))
    counts = [pod["spec"]["containers"][0]["resources"]["limits"][GPU] for pod in pods]
    node = make_node(tmp_path / "node", "t4", real_nodes=False)
    (tmp_path / "empty").mkdir()
    for name in ("GPUHOOK_HOST_ROOT", "GPUHOOK_DRIVER_ROOT", "GPUHOOK_DEV_ROOT"):
        env[name] = str(tmp_path / "empty")
    with kubelet, plugin(tmp_path / "plugin", node, kubelet, config, env):
        kubelet.wait_for_devices(GPU, 4)
        answers = [kubelet.allocate(GPU, count).response for count in counts]
    assert [answer.envs["NVIDIA_VISIBLE_DEVICES"][:4] for answer in answers] == ["GPU-", "GPU-"]
    assert len({answer.envs["NVIDIA_VISIBLE_DEVICES"] for answer in answers}) == 1
    assert not [answer for answer in answers if answer.devices or answer.mounts]
