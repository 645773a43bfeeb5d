# SPDX-License-Identifier: Apache-2.0
"""Broken nodes of a cluster: kubelet, device plugin, RuntimeClass, node object."""

from __future__ import annotations

import shutil
from typing import Any

from gpuhook.node_facts.sources import node_readings
from tests.doctor.case import Broken, FaultCase
from tests.doctor.parts import kubernetes
from tests.doctor.parts.kubernetes import CONFIG, PLUGINS, process, processes, units

CONTAINERD = "/etc/containerd/config.toml"
HANDLER = """
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
"""


def _api(case: FaultCase) -> dict[str, Any]:
    api: dict[str, Any] = case.readings[node_readings.API]
    return api


def _without(case: FaultCase, name: str) -> None:
    listed = processes(case)
    listed[:] = [one for one in listed if one["name"] != name]


def _no_kubelet(case: FaultCase) -> None:
    _without(case, "kubelet")
    units(case)["kubelet.service"]["active"] = "failed"


def _no_kubelet_socket(case: FaultCase) -> None:
    case.remove(f"{PLUGINS}/kubelet.sock")


def _no_pod_resources(case: FaultCase) -> None:
    case.remove("/var/lib/kubelet/pod-resources/kubelet.sock")


def _no_sockets(case: FaultCase) -> None:
    for path in case.path(f"{PLUGINS}/x").parent.glob("nvidia-*.sock"):
        path.unlink()


def _no_plugin(case: FaultCase) -> None:
    _no_sockets(case)
    _without(case, "nvidia-device-p")
    shutil.rmtree(case.path("/var/lib/kubelet/pods"))


def _plugin_without_driver(case: FaultCase) -> None:
    _no_sockets(case)
    _without(case, "nvidia-device-p")
    message = "failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND"
    case.write(kubernetes.LOG, f"2026-11-01T10:00:00.1Z stderr F E1101 {message}\n")


def _unregistered(case: FaultCase) -> None:
    kubernetes.write_checkpoint(case, {})


def _all_unhealthy(case: FaultCase) -> None:
    kubernetes.write_checkpoint(case, {"nvidia.com/gpu": []})


def _another_gpu(case: FaultCase) -> None:
    kubernetes.write_checkpoint(case, {"nvidia.com/gpu": ["GPU-gone::0"]})


def _broken_checkpoint(case: FaultCase) -> None:
    case.write(kubernetes.CHECKPOINT, '{"Data": ')


def _two_plugins(case: FaultCase) -> None:
    argv = ("/usr/bin/python3", "/usr/local/bin/gpuhook", "device-plugin")
    processes(case).append(process(1901, "gpuhook", *argv))


def _old_plugin_stays(case: FaultCase) -> None:
    processes(case).append(process(1902, "nvidia-device-p", "/usr/bin/nvidia-device-plugin"))


def _handler(case: FaultCase) -> None:
    place = case.path(CONTAINERD)
    if not place.exists() or ".runtimes.nvidia]" not in place.read_text(encoding="utf-8"):
        with place.open("a", encoding="utf-8") as file:
            file.write(HANDLER)


def _no_runtime_class(case: FaultCase) -> None:
    _handler(case)
    _api(case)["runtimeClasses"] = []


def _chart_of_a_git_clone(case: FaultCase) -> None:
    _no_runtime_class(case)
    _no_plugin(case)
    kubernetes.write_checkpoint(case, {})
    _api(case)["daemonSets"] = []


def _wrong_handler(case: FaultCase) -> None:
    _handler(case)
    _api(case)["runtimeClasses"] = [{"name": "nvidia", "handler": "nvidia-container-runtime"}]


def _spare_class(case: FaultCase) -> None:
    _handler(case)
    _api(case)["runtimeClasses"].append({"name": "nvidia-old", "handler": "nvidia-old"})


def _config(case: FaultCase, old: str, new: str) -> None:
    text = case.path(CONFIG).read_text(encoding="utf-8")
    assert old in text
    case.write(CONFIG, text.replace(old, new))


def _unfit_replicas(case: FaultCase) -> None:
    _config(case, "replicas: 4", 'replicas: "four"')


def _unknown_key(case: FaultCase) -> None:
    _config(case, "flags:", "flags:\n  renameByDefault: true")


def _other_config_wrong(case: FaultCase) -> None:
    case.write(CONFIG.replace("/default", "/mig-mixed"), "version: v2\nflags: {}\n")


def _too_many_replicas(case: FaultCase) -> None:
    _config(case, "replicas: 4", "replicas: 40")


def _exclusive(case: FaultCase) -> None:
    document = case.examined().readings.document(node_readings.INVENTORY)
    document["gpus"][0]["compute_mode"] = "exclusive-process"
    case.readings[node_readings.INVENTORY] = document


def _limits_too_large(case: FaultCase) -> None:
    _config(case, "replicas: 4", "replicas: 4\n      memory: 15Gi")


def _mig_not_offered(case: FaultCase) -> None:
    _config(case, "migStrategy: mixed", "migStrategy: none")


def _nothing_allocatable(case: FaultCase) -> None:
    node = _api(case)["node"]
    node["allocatable"] = {"cpu": "8", "nvidia.com/gpu": "0"}


def _some_unhealthy(case: FaultCase) -> None:
    _api(case)["node"]["allocatable"]["nvidia.com/gpu"] = "28"


def _not_ready(case: FaultCase) -> None:
    _api(case)["node"]["conditions"][0] |= {
        "status": "False",
        "reason": "KubeletNotReady",
        "message": "container runtime network not ready",
    }


def _cordoned(case: FaultCase) -> None:
    _api(case)["node"]["unschedulable"] = True


def _old_labels(case: FaultCase) -> None:
    _api(case)["node"]["labels"]["nvidia.com/cuda.driver-version.full"] = "470.57.02"


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
