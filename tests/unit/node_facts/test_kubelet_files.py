# SPDX-License-Identifier: Apache-2.0
"""The kubelet's files: their directory, registered devices, pods with a device plugin."""

from __future__ import annotations

import json

import pytest

from gpuhook.node_facts.sources import engine_handlers, kubelet_files
from gpuhook.node_facts.sources.node_tree import DirectoryTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def _write(root: Path, path: str, text: str = "") -> Path:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")
    return place


@pytest.mark.parametrize("root", kubelet_files.ROOTS)
def test_directory_of_each_distribution_is_found(tmp_path: Path, root: str) -> None:
    (tmp_path / root.lstrip("/") / "device-plugins").mkdir(parents=True)
    assert kubelet_files.directory(DirectoryTree(str(tmp_path))) == root


@pytest.mark.parametrize(
    "arguments",
    [
        ("kubelet", "--root-dir=/data/kubelet"),
        ("kubelet", "--root-dir", "/data/kubelet"),
        ("k3s", "agent", "--kubelet-arg", "root-dir=/data/kubelet"),
        ("k3s", "agent", "--kubelet-arg=root-dir=/data/kubelet"),
    ],
)
def test_argument_of_the_kubelet_takes_precedence(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "var/lib/kubelet/device-plugins").mkdir(parents=True)
    (tmp_path / "data/kubelet").mkdir(parents=True)
    assert kubelet_files.directory(DirectoryTree(str(tmp_path)), arguments) == "/data/kubelet"


def test_node_without_a_kubelet_has_no_directory(tmp_path: Path) -> None:
    assert kubelet_files.directory(DirectoryTree(str(tmp_path))) == ""


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"Data": null}', '{"Data": {"RegisteredDevices": [1]}}', "[" * 100_000],
)
def test_checkpoint_of_another_form_is_an_error(tmp_path: Path, text: str) -> None:
    _write(tmp_path, "/k/device-plugins/kubelet_internal_checkpoint", text)
    found = kubelet_files.checkpoint(DirectoryTree(str(tmp_path)), "/k")
    assert found is not None
    assert found.trouble
    assert found.registered == {}


def test_gpus_are_distinguished_from_other_devices(tmp_path: Path) -> None:
    registered = {
        "nvidia.com/gpu.shared": ["GPU-1::0", "GPU-1::1"],
        "nvidia.com/hostdev": ["0000:81:00.0"],
        "example.com/slice": ["MIG-1"],
        "nvidia.com/mig-1g.5gb": [],
        "amd.com/gpu": ["0000:03:00.0"],
    }
    text = json.dumps({"Data": {"RegisteredDevices": registered}})
    _write(tmp_path, "/k/device-plugins/kubelet_internal_checkpoint", text)
    found = kubelet_files.checkpoint(DirectoryTree(str(tmp_path)), "/k")
    assert found is not None
    assert set(found.gpus) == {
        "nvidia.com/gpu.shared",
        "example.com/slice",
        "nvidia.com/mig-1g.5gb",
    }


def test_pod_of_a_plugin_is_found_with_its_configuration_and_arguments(tmp_path: Path) -> None:
    pod = "/k/pods/uid-1"
    (tmp_path / pod.lstrip("/") / "containers/nvidia-device-plugin").mkdir(parents=True)
    (tmp_path / "k/pods/uid-2/containers/web").mkdir(parents=True)
    _write(tmp_path, f"{pod}/volumes/kubernetes.io~configmap/configs/..data/any", "a: 1")
    _write(tmp_path, f"{pod}/volumes/kubernetes.io~configmap/configs/any", "a: 1")
    link = tmp_path / pod.lstrip("/") / "volumes/kubernetes.io~empty-dir/config/config.yaml"
    link.parent.mkdir(parents=True)
    link.symlink_to("/available-configs/any")
    logs = "/var/log/pods/gpu-operator_nvidia-device-plugin-daemonset-abcde_uid-1"
    _write(tmp_path, f"{logs}/nvidia-device-plugin/9.log", "T stderr F old\n")
    _write(tmp_path, f"{logs}/nvidia-device-plugin/10.log", "T stderr F one\nT stderr F two  x\n")
    tree = DirectoryTree(str(tmp_path))
    (found,) = kubelet_files.plugin_pods(tree, "/k")
    assert (found.namespace, found.daemon_set) == ("gpu-operator", "nvidia-device-plugin-daemonset")
    assert [key for key, _ in found.configurations] == ["any"]
    assert found.chosen == "any"
    assert kubelet_files.last_lines(tree, found.logs, 1) == ["two  x"]


@pytest.mark.parametrize(
    ("path", "text", "names", "default"),
    [
        (
            "/etc/containerd/config.toml",
            (
                '[plugins."io.containerd.grpc.v1.cri".containerd]\n'
                '  default_runtime_name = "runc"\n'
                '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\n'
                '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\n'
            ),
            ["nvidia"],
            "runc",
        ),
        (
            "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
            "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.'nvidia']\n",
            ["nvidia"],
            "",
        ),
        (
            "/etc/crio/crio.conf.d/99-nvidia.conf",
            '[crio.runtime]\ndefault_runtime = "nvidia"\n[crio.runtime.runtimes.nvidia]\n',
            ["nvidia"],
            "nvidia",
        ),
        ("/etc/containerd/config.toml", "#[a.runtimes.nvidia]\n[x.runtimes.runc]\n", [], ""),
    ],
)
def test_handlers_are_found_in_the_files_of_engines(
    tmp_path: Path, path: str, text: str, names: list[str], default: str
) -> None:
    _write(tmp_path, path, text)
    found = engine_handlers.engine_handlers(DirectoryTree(str(tmp_path)))
    assert found.gpu == names
    assert found.default == default
