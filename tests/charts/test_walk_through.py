# SPDX-License-Identifier: Apache-2.0
"""From values to two pods on one T4: the rendered container's arguments start the real plugin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.charts.rendering import container, one, pod, rendered, variables
from tests.charts.values import OPERATORS, SETS
from tests.kubelet.config_map import ConfigMap
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import plugin
from tests.simulated.node import make_node
from tests.waiting import eventually

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize("values", [OPERATORS, SETS["time-slicing"]], ids=["operator", "chart"])
def test_two_pods_share_the_gpu_of_a_rendered_plugin(
    values: dict[str, Any], short_path: Path
) -> None:
    """The node offers four replicas, and an edit of the ConfigMap applies without a restart.

    The labels are removed when the plugin ends.
    """
    options = ("--set", "gfd.acceleratorLabel=true", "--set", "gfd.removeLabelsOnExit=true")
    objects = rendered(values, *options)
    (source,) = [v["configMap"]["name"] for v in pod(objects)["volumes"] if "configMap" in v]
    config_map = one(objects, "ConfigMap")
    assert config_map["metadata"]["name"] == source
    configs = ConfigMap(short_path / "configs")
    configs.publish(**config_map["data"])
    node = make_node(short_path / "node", "t4")
    features = short_path / "features"
    env = {
        **variables(objects),
        # The container's paths, below this test's directory.
        "CONFIG_FILE": "",
        "CONFIG_FILE_SRCDIR": str(configs.directory),
        "GPUHOOK_CDI_DIRECTORY": str(short_path / "cdi"),
        "GFD_OUTPUT_FILE": str(features),
        "NVIDIA_DRIVER_ROOT": node.driver_root,
        "NODE_NAME": "",
    }
    words = container(objects)["args"][1:]
    with (
        Kubelet(short_path / "device-plugins") as kubelet,
        plugin(short_path / "plugin", node, kubelet, env=env, options=words) as process,
    ):
        kubelet.wait_for_devices(GPU, 4)
        pods = [kubelet.allocate(GPU, 1).response for _ in range(2)]
        uuid = str(process.node.node.gpus[0].uuid)
        assert [each.envs["NVIDIA_VISIBLE_DEVICES"] for each in pods] == [uuid, uuid]
        assert [each.envs["GPUHOOK_REPLICAS"] for each in pods] == [f"{uuid}::0", f"{uuid}::1"]
        assert all(each.devices for each in pods)  # PASS_DEVICE_SPECS
        eventually(features.exists, "labels")
        labels = features.read_text()
        assert "nvidia.com/gpu.replicas=4\n" in labels
        assert "\naccelerator=nvidia-tesla-t4\n" in f"\n{labels}"
        text = config_map["data"]["default"].replace("replicas: 4", "replicas: 8")
        configs.publish(default=text)
        kubelet.wait_for_devices(GPU, 8)
        assert process.stop() == 0
        assert not features.exists()
