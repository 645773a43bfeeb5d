# SPDX-License-Identifier: Apache-2.0
"""The device plugin under the DaemonSet's restrictions: no capability, a read-only root."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kubelet import config_map
from tests.kubelet.config_map import ConfigMap
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.pod_resources import PodResources, pod
from tests.kubelet.process import GPU, OPERATOR, TIME_SLICING, PluginProcess, plugin
from tests.simulated import stub_events
from tests.simulated.node import make_node
from tests.waiting import eventually

WRITTEN = ("device-plugins", "cdi", "state", "features")
POWERLESS = "setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all --no-new-privs"


@dataclass(frozen=True)
class Confined:
    """The running plugin and its surroundings; `place` has its directories."""

    place: Path
    kubelet: Kubelet
    pods: PodResources
    configs: ConfigMap
    process: PluginProcess


@pytest.fixture
def confined(short_path: Path) -> Iterator[Confined]:
    """Yield a running plugin to which everything except its own directories is read-only."""
    for name in (*WRITTEN, "pod-resources"):
        (short_path / name).mkdir()
    configs = ConfigMap(short_path / "configs")
    configs.publish(**config_map.data())
    node = make_node(short_path / "node", "t4")
    with (
        Kubelet(short_path / "device-plugins") as kubelet,
        PodResources(short_path / "pod-resources/kubelet.sock") as pods,
    ):
        env = {
            **OPERATOR,
            "CONFIG_FILE": "",
            "CONFIG_FILE_SRCDIR": str(configs.directory),
            "DEVICE_LIST_STRATEGY": "envvar,cdi-annotations",
            "GPUHOOK_CDI_DIRECTORY": str(short_path / "cdi"),
            "GPUHOOK_LABELS": "true",
            "GFD_OUTPUT_FILE": str(short_path / "features/gfd"),
            "GPUHOOK_STATE_DIR": str(short_path / "state"),
            "NVIDIA_DRIVER_ROOT": node.driver_root,
            "POD_RESOURCES_SOCKET": str(pods.socket),
        }
        prefix = read_only(short_path)
        with plugin(short_path / "plugin", node, kubelet, env=env, prefix=prefix) as process:
            kubelet.wait_for_devices(GPU, 4)
            yield Confined(short_path, kubelet, pods, configs, process)


def read_only(place: Path) -> list[str]:
    """Return a command prefix: a new mount namespace, read-only, and no capabilities."""
    around = ["findmnt", "--noheadings", "--output", "TARGET", "--target", str(place)]
    mount_point = subprocess.run(around, capture_output=True, text=True, check=True).stdout.strip()
    steps = [f"mount --bind {place / name} {place / name}" for name in WRITTEN]
    steps += [f"mount -o remount,bind,ro {target}" for target in dict.fromkeys(["/", mount_point])]
    script = " && ".join([*steps, f'exec {POWERLESS} "$@"'])
    return ["unshare", "--mount", "sh", "-c", script, "sh"]


def test_plugin_has_no_capability_and_a_read_only_root(confined: Confined) -> None:
    """These are the restrictions of the manifest's security context."""
    status = Path(f"/proc/{confined.process.pid}/status").read_text().splitlines()
    fields = dict(line.split(":\t", 1) for line in status if ":\t" in line)
    assert {fields[name] for name in ("CapEff", "CapPrm", "CapBnd")} == {"0" * 16}
    assert fields["NoNewPrivs"] == "1"
    mounts = Path(f"/proc/{confined.process.pid}/mountinfo").read_text().splitlines()
    options = {line.split()[4]: line.split()[5] for line in mounts}
    assert options["/"].startswith("ro")
    assert all(options[str(confined.place / name)].startswith("rw") for name in WRITTEN)


def test_confined_plugin_works(confined: Confined) -> None:
    """It registers, allocates, writes specs and labels, reports faults, reloads and ends."""
    (unit,) = confined.kubelet.allocate(GPU, 1).ids
    confined.pods.pods = [pod("default", "gpu-test-1", "main", GPU, [unit])]
    assert (confined.place / "cdi/k8s.device-plugin.nvidia.com-gpu.json").is_file()
    features = confined.place / "features/gfd"
    eventually(features.exists, "labels")  # another thread writes them
    assert "nvidia.com/gpu.replicas=4\n" in features.read_text()
    assert "gpuhook_replica_holder{" in confined.process.metrics()

    two = TIME_SLICING.replace("replicas: 4", "replicas: 2")
    confined.configs.publish(default=two)
    confined.kubelet.wait_for_devices(GPU, 2)
    confined.kubelet.restart()
    confined.kubelet.wait_for_devices(GPU, 2)

    uuid = str(confined.process.node.node.gpus[0].uuid)
    stub_events.say(confined.process.node, uuid, "recovery 1")
    stub_events.inject_xid(confined.process.node, uuid, 79)
    confined.kubelet.wait_for_devices(GPU, 0, 2)
    line = confined.process.wait_for_log(reason="GpuUnhealthy")
    assert line["pods"] == ["default/gpu-test-1"]
    assert any((confined.place / "state").iterdir())  # its state remains after it ends
    assert confined.process.stop() == 0
    log = (confined.process.place / "log").read_text()
    assert "Read-only" not in log
    assert "not permitted" not in log
    assert "Permission denied" not in log
