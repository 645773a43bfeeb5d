# SPDX-License-Identifier: Apache-2.0
"""The manifests for a cluster: consistent with each other, the plugin's options and the image."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from gpuhook import device_plugin
from gpuhook.cli import main
from gpuhook.device_plugin.api_server.client import Purpose
from gpuhook.device_plugin.config import config_reader
from gpuhook.device_plugin.config import configuration as config_build
from gpuhook.device_plugin.config.config_source import ConfigSource
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.launch_options import Launch, launch
from gpuhook.device_plugin.config.overrides import read_overrides
from gpuhook.device_plugin.config.plugin_options import OPTIONS
from gpuhook.host.hot import state
from tests.kubelet import config_map
from tests.kubelet.process import OPERATOR, TIME_SLICING

ROOT = Path(__file__).parents[3]
PLACE = ROOT / "packaging/kubernetes"
CLUSTER_WIDE = {"Namespace", "RuntimeClass", "ClusterRole", "ClusterRoleBinding"}
# Variables for the runtime of the plugin's container, which are no options of the plugin.
OF_THE_RUNTIME = {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}
HIDDEN = ("proc", "run", "sys", "var")
# Directories below /run that CDI specs contain.
RUN = {"nvidia-persistenced": "", "nvidia-fabricmanager": "", "udev": "/data"}
OPTION_NAME = re.compile(r"--[a-z][a-z-]+")


def documents(name: str) -> dict[str, Any]:
    """Return the documents of a manifest by their kind."""
    found = list(yaml.safe_load_all((PLACE / name).read_text(encoding="utf-8")))
    by_kind = {one["kind"]: one for one in found}
    assert len(by_kind) == len(found)
    return by_kind


@pytest.fixture
def objects() -> dict[str, Any]:
    return documents("gpuhook.yaml")


@pytest.fixture
def pod(objects: dict[str, Any]) -> dict[str, Any]:
    return dict(objects["DaemonSet"]["spec"]["template"]["spec"])


@pytest.fixture
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    return dict(only)


def variables(container: dict[str, Any]) -> dict[str, str]:
    """Return the environment of the container; a value from a field is kept as its reference."""
    assert len({one["name"] for one in container["env"]}) == len(container["env"])
    return {one["name"]: one.get("value", "from-a-field") for one in container["env"]}


def started(container: dict[str, Any]) -> tuple[Launch, Configuration]:
    """Return how the plugin starts in that container, with the ConfigMap's default."""
    said = read_overrides({}, variables(container))
    assert said.findings == []
    entries = documents("gpuhook.yaml")["ConfigMap"]["data"]
    reading = config_reader.read(entries["default"].encode(), "default", said.overrides)
    assert reading.configuration is not None
    return launch(said), reading.configuration


@pytest.mark.parametrize("name", ["gpuhook.yaml", "api-access.yaml"])
def test_all_objects_are_in_one_namespace(name: str) -> None:
    namespace = documents("gpuhook.yaml")["Namespace"]["metadata"]["name"]
    for kind, one in documents(name).items():
        wanted = None if kind in CLUSTER_WIDE else namespace
        assert one["metadata"].get("namespace") == wanted, kind


def test_every_configuration_is_valid(objects: dict[str, Any]) -> None:
    entries = objects["ConfigMap"]["data"]
    for name, text in entries.items():
        assert config_reader.read(text.encode(), name).findings == ()
    assert "default" in entries


def test_configuration_is_that_of_the_operator(objects: dict[str, Any]) -> None:
    """The ConfigMap has the meaning of the one that the GPU operator makes."""
    texts = [objects["ConfigMap"]["data"]["default"], config_map.data()["default"], TIME_SLICING]
    read = [config_reader.read(text.encode(), "default").configuration for text in texts]
    made = [config_build.document(one) for one in read if one is not None]
    assert made == [made[0]] * 3
    assert objects["ConfigMap"]["metadata"]["name"] == "device-plugin-config"


def test_every_variable_is_known(container: dict[str, Any]) -> None:
    known = {name for one in OPTIONS if not one.ignored for name in one.variables}
    assert variables(container).keys() - OF_THE_RUNTIME - known == set()


def test_variables_of_the_operator_are_set(container: dict[str, Any]) -> None:
    """They have the values of values.yaml; the plugin itself only needs NVML.

    The strategy is not among them, as it would win over the ConfigMap's; the default is the same.
    """
    found = variables(container)
    own = {"NVIDIA_DRIVER_CAPABILITIES": "utility"}
    wanted = {**OPERATOR, **own}
    strategy = wanted.pop("DEVICE_LIST_STRATEGY")
    assert {name: found.get(name) for name in wanted} == wanted
    assert "DEVICE_LIST_STRATEGY" not in found
    assert started(container)[1].flags.plugin.device_list_strategy == (strategy,)


def test_plugin_reads_the_mounted_config_map(
    pod: dict[str, Any], container: dict[str, Any]
) -> None:
    """The directory is the one on which the whole ConfigMap is mounted."""
    (volume,) = [one for one in pod["volumes"] if "configMap" in one]
    (mount,) = [one for one in container["volumeMounts"] if one["name"] == volume["name"]]
    assert volume["configMap"] == {"name": "device-plugin-config"}
    assert "subPath" not in mount
    source = ConfigSource(directory=mount["mountPath"], default_name="default")
    assert started(container)[0].source == source


def test_every_volume_is_mounted_at_its_own_path(
    pod: dict[str, Any], container: dict[str, Any]
) -> None:
    """Except for the host's root: a path on the host is the same path in the container."""
    mounts = {one["name"]: one for one in container["volumeMounts"]}
    volumes = {one["name"]: one for one in pod["volumes"]}
    assert mounts.keys() == volumes.keys()
    for name, volume in volumes.items():
        if "hostPath" in volume and name not in {"driver-root", "own-gpus", "dev", *RUN}:
            assert mounts[name]["mountPath"] == volume["hostPath"]["path"]
    for name in ("dev", *RUN):
        assert mounts[name]["mountPath"] == "/driver-root" + volumes[name]["hostPath"]["path"]


def test_used_paths_are_mounted(container: dict[str, Any]) -> None:
    """Written paths are writable, unlike the root file system; the others are read-only."""
    chosen, configuration = started(container)
    flags = configuration.flags
    written = {
        chosen.plugin_directory,
        os.path.dirname(chosen.kubelet_socket),
        chosen.cdi_directory,
        os.path.dirname(flags.gfd.output_file),
        "/run/gpuhook",
    }
    read = {
        os.path.dirname(chosen.pod_resources_socket),
        flags.plugin.container_driver_root,
        f"{flags.plugin.container_driver_root}/dev",
        f"{chosen.drivers_directory}/gpu.nvidia.com",
        chosen.source.directory,
        *(f"{flags.plugin.container_driver_root}/run/{name}{below}" for name, below in RUN.items()),
    }
    written |= {f"{flags.plugin.container_driver_root}/{name}" for name in HIDDEN}  # empty
    asked = "/var/run/nvidia-container-devices/all"  # for the runtime: the plugin does not read it
    mounts = {one["mountPath"]: one.get("readOnly", False) for one in container["volumeMounts"]}
    assert mounts.pop(asked) is False
    assert mounts == {**dict.fromkeys(written, False), **dict.fromkeys(read, True)}


def test_state_directory_is_that_of_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state directory of root, without a variable: the ledger of gpuhook-runtime."""
    monkeypatch.delenv(state.DIRECTORY_ENV, raising=False)
    monkeypatch.setattr(state, "is_rootless", lambda: False)
    assert state.directory() == "/run/gpuhook"


def test_labels_are_for_node_feature_discovery(container: dict[str, Any]) -> None:
    own = started(container)[1].own
    assert (own.labels, own.label_node) == (True, False)


def test_container_has_no_privileges(pod: dict[str, Any], container: dict[str, Any]) -> None:
    """test_plugin_rights.py runs the plugin with the same restrictions."""
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert "hostNetwork" not in pod
    assert "hostIPC" not in pod


def test_no_token_without_the_second_manifest(objects: dict[str, Any], pod: dict[str, Any]) -> None:
    assert objects["ServiceAccount"]["automountServiceAccountToken"] is False
    assert pod["automountServiceAccountToken"] is False
    assert objects["ServiceAccount"]["metadata"]["name"] == pod["serviceAccountName"]


def test_pods_and_plugin_use_the_runtime_class(
    objects: dict[str, Any], pod: dict[str, Any]
) -> None:
    """packaging/containerd and docs/how-to/by-hand.md configure its handler."""
    runtime = objects["RuntimeClass"]
    assert pod["runtimeClassName"] == runtime["metadata"]["name"]
    table = f"containerd.runtimes.{runtime['handler']}]"
    for path in ("packaging/containerd/nvidia.toml", "docs/how-to/by-hand.md"):
        assert table in (ROOT / path).read_text(encoding="utf-8")


def test_daemon_set_selects_its_own_pods(objects: dict[str, Any]) -> None:
    spec = objects["DaemonSet"]["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]


def test_namespace_admits_the_pod(objects: dict[str, Any], pod: dict[str, Any]) -> None:
    """Paths of the host and its pid namespace require more than the pod security level baseline."""
    assert pod["hostPID"]
    labels = objects["Namespace"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


def test_image_has_the_command(container: dict[str, Any]) -> None:
    """The image has the plugin's imports, and its entry point is the command line."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    assert json.loads(entry) == ["/usr/bin/gpuhook"]
    needed = subprocess.run(
        [sys.executable, ROOT / "packaging/image/tree.py", "requirements"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert {"click", "grpcio", "protobuf"} <= set(re.findall(r"^[a-z-]+", needed, re.MULTILINE))
    (command,) = container["args"]
    assert main.get_command(click.Context(main), command) is not None


def purposes() -> set[tuple[str, str]]:
    """Return all API requests of the plugin: verb and resource."""
    found = set()
    for module in pkgutil.walk_packages(device_plugin.__path__, f"{device_plugin.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Purpose):
                found.add((value.verb, value.resource))
    return found


def test_role_grants_exactly_the_used_permissions() -> None:
    granted = {
        (verb, resource)
        for rule in documents("api-access.yaml")["ClusterRole"]["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == purposes()
    assert granted == {
        ("get", "nodes"), ("watch", "nodes"), ("patch", "nodes"), ("create", "events"),
    }  # fmt: skip
    for rule in documents("api-access.yaml")["ClusterRole"]["rules"]:
        assert rule["apiGroups"] == [""]


def test_role_is_bound_to_the_plugin(pod: dict[str, Any]) -> None:
    found = documents("api-access.yaml")
    binding = found["ClusterRoleBinding"]
    (subject,) = binding["subjects"]
    assert subject["name"] == pod["serviceAccountName"]
    assert subject["namespace"] == documents("gpuhook.yaml")["Namespace"]["metadata"]["name"]
    assert binding["roleRef"]["name"] == found["ClusterRole"]["metadata"]["name"]


def test_comment_explains_each_permission() -> None:
    """The tables of manifest and plugin.md have every verb, with the plugin's options."""
    text = (PLACE / "api-access.yaml").read_text(encoding="utf-8")
    comment = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    page = (ROOT / "docs/reference/plugin.md").read_text(encoding="utf-8").replace("`", "")
    for verb, resource in purposes():
        assert re.search(rf"{resource}: [a-z, ]*\b{verb}\b", comment)
        assert re.search(rf"\| {resource}: [a-z, ]*\b{verb}\b", page)
    options = {f"--{one.name}" for one in OPTIONS}
    of_kubectl = {"--namespace", "--type", "--patch"}
    assert set(OPTION_NAME.findall(comment)) - of_kubectl <= options


def test_patch_in_the_comment_mounts_the_token(objects: dict[str, Any]) -> None:
    text = (PLACE / "api-access.yaml").read_text(encoding="utf-8")
    (patch,) = re.findall(r"^#\s+'(\{.*\})'$", text, re.MULTILINE)
    spec = json.loads(patch)["spec"]["template"]["spec"]
    assert spec == {"automountServiceAccountToken": True}
    namespace, name = (objects["DaemonSet"]["metadata"][key] for key in ("namespace", "name"))
    assert f"--namespace {namespace} patch daemonset {name} " in text
