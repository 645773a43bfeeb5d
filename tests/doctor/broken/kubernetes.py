# SPDX-License-Identifier: Apache-2.0
"""The ways in which a node of a cluster is broken: kubelet, device plugin, RuntimeClass, node."""

from __future__ import annotations

import shutil
from typing import Any

from gpuhook.node import node_readings
from tests.doctor.parts import kubernetes
from tests.doctor.parts.kubernetes import CONFIG, PLUGINS, process, processes, units
from tests.doctor.scene import Broken, Scene

CONTAINERD = "/etc/containerd/config.toml"
HANDLER = """
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
"""


def _api(scene: Scene) -> dict[str, Any]:
    found: dict[str, Any] = scene.readings[node_readings.API]
    return found


def _without(scene: Scene, name: str) -> None:
    listed = processes(scene)
    listed[:] = [one for one in listed if one["name"] != name]


def _no_kubelet(scene: Scene) -> None:
    _without(scene, "kubelet")
    units(scene)["kubelet.service"]["active"] = "failed"


def _no_kubelet_socket(scene: Scene) -> None:
    scene.remove(f"{PLUGINS}/kubelet.sock")


def _no_pod_resources(scene: Scene) -> None:
    scene.remove("/var/lib/kubelet/pod-resources/kubelet.sock")


def _no_sockets(scene: Scene) -> None:
    for path in scene.path(f"{PLUGINS}/x").parent.glob("nvidia-*.sock"):
        path.unlink()


def _no_plugin(scene: Scene) -> None:
    _no_sockets(scene)
    _without(scene, "nvidia-device-p")
    shutil.rmtree(scene.path("/var/lib/kubelet/pods"))


def _plugin_without_driver(scene: Scene) -> None:
    _no_sockets(scene)
    _without(scene, "nvidia-device-p")
    said = "failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND"
    scene.write(kubernetes.LOG, f"2026-11-01T10:00:00.1Z stderr F E1101 {said}\n")


def _unregistered(scene: Scene) -> None:
    kubernetes.write_checkpoint(scene, {})


def _all_unhealthy(scene: Scene) -> None:
    kubernetes.write_checkpoint(scene, {"nvidia.com/gpu": []})


def _another_gpu(scene: Scene) -> None:
    kubernetes.write_checkpoint(scene, {"nvidia.com/gpu": ["GPU-gone::0"]})


def _broken_checkpoint(scene: Scene) -> None:
    scene.write(kubernetes.CHECKPOINT, '{"Data": ')


def _two_plugins(scene: Scene) -> None:
    argv = ("/usr/bin/python3", "/usr/local/bin/gpuhook", "device-plugin")
    processes(scene).append(process(1901, "gpuhook", *argv))


def _old_plugin_stays(scene: Scene) -> None:
    processes(scene).append(process(1902, "nvidia-device-p", "/usr/bin/nvidia-device-plugin"))


def _handler(scene: Scene) -> None:
    place = scene.path(CONTAINERD)
    if not place.exists() or ".runtimes.nvidia]" not in place.read_text(encoding="utf-8"):
        with place.open("a", encoding="utf-8") as file:
            file.write(HANDLER)


def _no_runtime_class(scene: Scene) -> None:
    _handler(scene)
    _api(scene)["runtimeClasses"] = []


def _chart_of_a_git_clone(scene: Scene) -> None:
    _no_runtime_class(scene)
    _no_plugin(scene)
    kubernetes.write_checkpoint(scene, {})
    _api(scene)["daemonSets"] = []


def _wrong_handler(scene: Scene) -> None:
    _handler(scene)
    _api(scene)["runtimeClasses"] = [{"name": "nvidia", "handler": "nvidia-container-runtime"}]


def _spare_class(scene: Scene) -> None:
    _handler(scene)
    _api(scene)["runtimeClasses"].append({"name": "nvidia-old", "handler": "nvidia-old"})


def _config(scene: Scene, old: str, new: str) -> None:
    text = scene.path(CONFIG).read_text(encoding="utf-8")
    assert old in text
    scene.write(CONFIG, text.replace(old, new))


def _unfit_replicas(scene: Scene) -> None:
    _config(scene, "replicas: 4", 'replicas: "four"')


def _unknown_key(scene: Scene) -> None:
    _config(scene, "flags:", "flags:\n  renameByDefault: true")


def _other_config_wrong(scene: Scene) -> None:
    scene.write(CONFIG.replace("/default", "/mig-mixed"), "version: v2\nflags: {}\n")


def _too_many_replicas(scene: Scene) -> None:
    _config(scene, "replicas: 4", "replicas: 40")


def _exclusive(scene: Scene) -> None:
    document = scene.examined().readings.document(node_readings.INVENTORY)
    document["gpus"][0]["compute_mode"] = "exclusive-process"
    scene.readings[node_readings.INVENTORY] = document


def _limits_too_large(scene: Scene) -> None:
    _config(scene, "replicas: 4", "replicas: 4\n      memory: 15Gi")


def _mig_not_offered(scene: Scene) -> None:
    _config(scene, "migStrategy: mixed", "migStrategy: none")


def _nothing_allocatable(scene: Scene) -> None:
    node = _api(scene)["node"]
    node["allocatable"] = {"cpu": "8", "nvidia.com/gpu": "0"}


def _some_unhealthy(scene: Scene) -> None:
    _api(scene)["node"]["allocatable"]["nvidia.com/gpu"] = "28"


def _not_ready(scene: Scene) -> None:
    _api(scene)["node"]["conditions"][0] |= {
        "status": "False",
        "reason": "KubeletNotReady",
        "message": "container runtime network not ready",
    }


def _cordoned(scene: Scene) -> None:
    _api(scene)["node"]["unschedulable"] = True


def _old_labels(scene: Scene) -> None:
    _api(scene)["node"]["labels"]["nvidia.com/cuda.driver-version.full"] = "470.57.02"


BROKEN = [
    Broken("kubelet-stopped", "kubelet.running", _no_kubelet),
    Broken("kubelet-socket-missing", "kubelet.plugin-directory", _no_kubelet_socket),
    Broken("pod-resources-missing", "kubelet.pod-resources", _no_pod_resources, is_warning=True),
    Broken("device-plugin-missing", "plugin.running", _no_plugin),
    Broken("device-plugin-without-driver", "plugin.running", _plugin_without_driver),
    Broken("plugin-socket-missing", "plugin.socket", _no_sockets),
    Broken("plugin-unregistered", "plugin.registration", _unregistered),
    Broken("checkpoint-broken", "plugin.registration", _broken_checkpoint, is_warning=True),
    Broken("plugin-all-unhealthy", "plugin.devices", _all_unhealthy),
    Broken("plugin-offers-another-gpu", "plugin.devices", _another_gpu, is_warning=True),
    Broken("two-device-plugins", "plugin.rivals", _two_plugins),
    Broken("old-device-plugin-stays", "plugin.rivals", _old_plugin_stays),
    Broken("runtime-class-missing", "runtime-class.exists", _no_runtime_class),
    Broken("chart-of-a-git-clone", "runtime-class.exists", _chart_of_a_git_clone),
    Broken("runtime-class-wrong-handler", "runtime-class.handler", _wrong_handler),
    Broken("runtime-class-to-spare", "runtime-class.handler", _spare_class, is_warning=True),
    Broken("plugin-config-unfit", "plugin.config", _unfit_replicas),
    Broken("plugin-config-unknown-key", "plugin.config", _unknown_key, is_warning=True),
    Broken("plugin-config-other-wrong", "plugin.config", _other_config_wrong, is_warning=True),
    Broken("time-slices-too-small", "plugin.sharing", _too_many_replicas, is_warning=True),
    Broken("limits-above-memory", "plugin.sharing", _limits_too_large),
    Broken("time-slices-of-exclusive-gpu", "plugin.compute-mode", _exclusive),
    Broken("mig-not-offered", "plugin.mig", _mig_not_offered, "a100-mig", is_warning=True),
    Broken("nothing-allocatable", "node.allocatable", _nothing_allocatable),
    Broken("some-gpus-unhealthy", "node.allocatable", _some_unhealthy, "h100x8", is_warning=True),
    Broken("node-not-ready", "node.ready", _not_ready),
    Broken("node-cordoned", "node.ready", _cordoned, is_warning=True),
    Broken("labels-of-an-old-driver", "node.labels", _old_labels, is_warning=True),
]
