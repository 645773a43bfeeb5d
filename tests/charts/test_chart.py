# SPDX-License-Identifier: Apache-2.0
"""The chart's objects agree with each other, with the plugin's options and with Kubernetes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from gpuhook import __version__
from gpuhook.cli import main
from gpuhook.device_plugin.config import config_reader
from gpuhook.device_plugin.config.launch_options import launch
from gpuhook.device_plugin.config.overrides import read_overrides
from gpuhook.device_plugin.config.plugin_options import OPTIONS
from tests.charts.rendering import (
    CHART,
    HELM,
    ROOT,
    container,
    one,
    pod,
    refused,
    rendered,
    variables,
)
from tests.charts.values import DRA, OPERATORS, SETS, THREE
from tests.kubelet import config_map

CLUSTER_WIDE = {
    "RuntimeClass",
    "ClusterRole",
    "ClusterRoleBinding",
    "DeviceClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
RUNTIME_VARIABLES = {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}
KNOWN = {
    "ServiceAccount": "v1",
    "ConfigMap": "v1",
    "Service": "v1",
    "DaemonSet": "apps/v1",
    "RuntimeClass": "node.k8s.io/v1",
    "ClusterRole": "rbac.authorization.k8s.io/v1",
    "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
    "ServiceMonitor": "monitoring.coreos.com/v1",
    "PodMonitor": "monitoring.coreos.com/v1",
    "PrometheusRule": "monitoring.coreos.com/v1",
    "DeviceClass": "resource.k8s.io/v1",
    "ValidatingAdmissionPolicy": "admissionregistration.k8s.io/v1",
    "ValidatingAdmissionPolicyBinding": "admissionregistration.k8s.io/v1",
}
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
every = pytest.mark.parametrize("values", SETS.values(), ids=SETS.keys())


def daemon_sets(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one_object for one_object in objects if one_object["kind"] == "DaemonSet"]


def test_number_of_value_sets() -> None:
    assert len(SETS) >= 25


@every
def test_objects_are_valid(values: dict[str, Any]) -> None:
    """Each object has its API version, a unique name, and a namespace unless it is cluster-wide."""
    objects = rendered(values)
    assert len({(o["kind"], o["metadata"]["name"]) for o in objects}) == len(objects)
    for obj in objects:
        assert KNOWN[obj["kind"]] == obj["apiVersion"]
        name = obj["metadata"]["name"]
        assert NAME.fullmatch(name.replace(".", "-") if obj["kind"] == "DeviceClass" else name)
        wanted = None if obj["kind"] in CLUSTER_WIDE else values.get("namespaceOverride", "gpu")
        assert obj["metadata"].get("namespace") == wanted
        assert all(type(text) is str for text in obj["metadata"]["labels"].values())


@every
def test_selectors_match_their_pods_only(values: dict[str, Any]) -> None:
    objects = rendered(values)
    labels = []
    for obj in daemon_sets(objects):
        wanted = obj["spec"]["selector"]["matchLabels"]
        labels.append(obj["spec"]["template"]["metadata"]["labels"])
        assert wanted.items() <= labels[-1].items()
        assert [o for o in labels if wanted.items() <= o.items()] == [labels[-1]]
    for obj in objects:
        if obj["kind"] == "Service":
            assert obj["spec"]["selector"].items() <= labels[0].items()
        elif obj["kind"] == "ServiceMonitor":
            service = one(objects, "Service")
            selector = obj["spec"]["selector"]["matchLabels"]
            assert selector.items() <= service["metadata"]["labels"].items()
        elif obj["kind"] == "PodMonitor":
            assert obj["spec"]["selector"]["matchLabels"].items() <= labels[0].items()


@every
def test_mounts_and_volumes_match(values: dict[str, Any]) -> None:
    objects = rendered(values)
    for daemon_set in daemon_sets(objects):
        spec = daemon_set["spec"]["template"]["spec"]
        (inner,) = spec["containers"]
        mounts = {mount["name"] for mount in inner["volumeMounts"]}
        assert sorted(mounts) == sorted(volume["name"] for volume in spec["volumes"])
        paths = [mount["mountPath"] for mount in inner["volumeMounts"]]
        assert len(set(paths)) == len(paths)
        for volume in spec["volumes"]:
            assert len(volume) == 2
            if "configMap" in volume:
                assert_config_map_exists(volume["configMap"]["name"], objects, values)
            elif "hostPath" in volume:
                assert volume["hostPath"]["path"].startswith("/")
            else:
                assert "emptyDir" in volume


def test_directories_of_the_node_are_hidden() -> None:
    """Mounts below a read-only /driver-root are writable: an empty directory hides each of them."""
    for values, expected in (
        ({}, ["proc", "run", "sys", "var"]),
        ({"nvidiaDriverRoot": "/"}, ["proc", "run", "sys", "var"]),
        ({"hiddenDirectories": ["proc", "sys"]}, ["proc", "sys"]),
        ({"hiddenDirectories": None}, []),
        ({"nvidiaDriverRoot": "/run/nvidia/driver"}, []),
    ):
        for objects, name in (
            (rendered(values), "device-plugin"),
            (rendered(values | DRA), "-dra"),
        ):
            inner, spec = container(objects, name), pod(objects, name)
            paths = [m["mountPath"] for m in inner["volumeMounts"] if m["name"] == "hidden"]
            assert paths == [f"/driver-root/{one}" for one in expected]
            volumes = {one["name"] for one in spec["volumes"]}
            assert ("hidden" in volumes) is bool(expected)
            for directory in ("nvidia-persistenced", "nvidia-fabricmanager", "udev"):
                assert (directory in volumes) is ("run" in expected)


@pytest.mark.parametrize(
    ("values", "is_kept"),
    [
        ({}, True),
        ({"migStrategy": "mixed"}, False),
        ({"features": {"privileged": True}}, False),
        ({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, False),
        ({"nvidiaDriverRoot": "/run/nvidia/driver"}, False),
    ],
    ids=["none", "mig", "privileged", "default capabilities", "driver container"],
)
def test_dev_is_read_only_unless_nodes_are_created(values: dict[str, Any], is_kept: bool) -> None:
    """A container that can create device nodes has the writable /dev of the node's /."""
    for objects, name in (
        (rendered(values), "device-plugin"),
        (rendered(values | DRA | {"dra": DRA["dra"] | {"runtimeClassName": "nvidia"}}), "-dra"),
    ):
        if name == "-dra" and set(values) & {"features", "securityContext"}:
            continue  # of the plugin only
        mounts = container(objects, name)["volumeMounts"]
        found = [m for m in mounts if m["mountPath"] == "/driver-root/dev"]
        assert [m["readOnly"] for m in found] == [True] * is_kept


@pytest.mark.parametrize("hidden", [["/proc"], ["../etc"], "proc", ["dev"], ["usr"]])
def test_hidden_directories_are_names(hidden: object) -> None:
    """The driver's files and the device nodes cannot be hidden."""
    assert "hiddenDirectories" in refused({"hiddenDirectories": hidden})


def assert_config_map_exists(
    name: str, objects: list[dict[str, Any]], values: dict[str, Any]
) -> None:
    """Assert that the chart makes that ConfigMap, or that the values name it."""
    made = [o["metadata"]["name"] for o in objects if o["kind"] == "ConfigMap"]
    outside = values.get("config") or values["devicePlugin"]["config"]
    assert name in made or (not made and name == outside["name"])


@every
def test_plugin_reads_each_variable(values: dict[str, Any]) -> None:
    objects = rendered(values)
    if not values.get("devicePlugin", {}).get("enabled", True):
        assert not [o for o in daemon_sets(objects) if "plugin" in o["metadata"]["name"]]
        return
    environment = variables(objects)
    known = {name for option in OPTIONS if not option.ignored for name in option.variables}
    assert environment.keys() - RUNTIME_VARIABLES - known == set()
    overrides = read_overrides({}, environment)
    assert overrides.findings == []
    assert launch(overrides).plugin_directory == "/var/lib/kubelet/device-plugins"


@every
def test_commands_accept_the_arguments(values: dict[str, Any]) -> None:
    """Click parses the arguments of each container."""
    for daemon_set in daemon_sets(rendered(values)):
        (inner,) = daemon_set["spec"]["template"]["spec"]["containers"]
        words = ["/" if word == "/host" else word for word in inner["args"]]  # must exist
        group: click.Command = main
        context = click.Context(main)
        while isinstance(group, click.Group):
            command = group.get_command(context, words[0])
            assert command is not None, words
            group, *words = command, *words[1:]
        group.make_context(group.name, words, parent=context).close()


@every
def test_cluster_role_is_bound_to_the_plugins_account(values: dict[str, Any]) -> None:
    """A pod has a token exactly if its account has a role; each role is of one pod's account."""
    objects = rendered(values)
    roles = [o for o in objects if o["kind"] == "ClusterRole"]
    accounts = []
    for role in roles:
        assert role["rules"]
        binding = one(objects, "ClusterRoleBinding", role["metadata"]["name"])
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        (subject,) = binding["subjects"]
        accounts.append(subject["name"])
        assert subject["namespace"] == values.get("namespaceOverride", "gpu")
    pods = [o["spec"]["template"]["spec"] for o in daemon_sets(objects)]
    for spec in pods:
        has_role = spec.get("serviceAccountName") in accounts
        assert spec["automountServiceAccountToken"] is has_role
    assert set(accounts) <= {spec.get("serviceAccountName") for spec in pods}
    made = {o["metadata"]["name"] for o in objects if o["kind"] == "ServiceAccount"}
    assert set(accounts) - made <= {"mine"}


def permissions(values: dict[str, Any]) -> set[tuple[str, str]]:
    return {
        (verb, resource)
        for role in rendered(values)
        if role["kind"] == "ClusterRole"
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_permissions_follow_the_values() -> None:
    label = {("get", "nodes"), ("watch", "nodes")}
    assert (
        permissions(SETS["nothing"])
        == permissions(OPERATORS)
        == permissions(SETS["time-slicing"])
        == set()
    )
    assert permissions(SETS["three"]) == permissions(SETS["external"]) == label
    assert permissions(SETS["no-label-access"]) == set()
    assert permissions(SETS["events-alone"]) == {("create", "events")}
    assert permissions(SETS["api"]) == {*label, ("create", "events"), ("patch", "nodes")}


def test_values_of_the_operator_apply_unchanged() -> None:
    """Image, variables and configuration are those of the operator's block."""
    objects = rendered(OPERATORS)
    block = OPERATORS["devicePlugin"]
    assert container(objects)["image"] == "registry.example/gpus/gpuhook:v0.1.0"
    env = {entry["name"]: entry["value"] for entry in block["env"]}
    assert env.items() <= variables(objects).items()
    config_map_object = one(objects, "ConfigMap")
    assert config_map_object["metadata"]["name"] == "device-plugin-config"
    assert config_map_object["data"] == block["config"]["data"] == config_map.data()
    assert variables(objects)["DEFAULT_CONFIG"] == "default"


@every
def test_configurations_are_unchanged_and_valid(values: dict[str, Any]) -> None:
    configured = values.get("config", {}).get("map")
    wanted = configured or values.get("devicePlugin", {}).get("config", {}).get("data", {})
    maps = [o for o in rendered(values) if o["kind"] == "ConfigMap"]
    made = [o["data"] for o in maps if not o["metadata"]["name"].endswith("-dashboard")]
    assert made == ([{k: v.rstrip("\n") for k, v in wanted.items()}] if wanted else [])
    is_plugin = values.get("devicePlugin", {}).get("enabled", True)
    for name, text in wanted.items():
        environment = variables(rendered(values), "device-plugin" if is_plugin else "dra")
        overrides = read_overrides({}, environment).overrides
        assert config_reader.read(text.encode(), name, overrides).findings == ()


@pytest.mark.parametrize(
    ("name", "added"),
    [
        ("nothing", None),
        ("operator", None),
        ("guard", ["KILL"]),
        ("guard-looks-everywhere", ["KILL", "SYS_PTRACE"]),
        ("time-slices", ["SYS_ADMIN"]),
        ("compute-mode", ["SYS_ADMIN"]),
        ("three", ["MKNOD"]),
        ("mig-by-value", ["MKNOD"]),
        ("features-by-hand", ["KILL", "MKNOD", "SYS_ADMIN"]),
    ],
)
def test_capabilities_follow_the_configuration(name: str, added: list[str] | None) -> None:
    assert container(rendered(SETS[name]))["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], **({"add": added} if added else {})},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.parametrize(
    "name", ["mps", "mps-elsewhere", "host-files", "no-handler", "own-security"]
)
def test_values_that_need_a_privileged_container(name: str) -> None:
    assert container(rendered(SETS[name]))["securityContext"] == {"privileged": True}


def test_mps_directory_is_mounted() -> None:
    objects = rendered(SETS["mps-elsewhere"])
    environment = variables(objects)
    assert (environment["MPS_ROOT"], environment["NVIDIA_DRIVER_CAPABILITIES"]) == (
        "/var/lib/mps",
        "compute,utility",
    )
    (mount,) = [o for o in container(objects)["volumeMounts"] if o["name"] == "mps"]
    (volume,) = [o for o in pod(objects)["volumes"] if o["name"] == "mps"]
    assert mount["mountPath"] == volume["hostPath"]["path"] == "/var/lib/mps"


@pytest.mark.parametrize("propagation", ["HostToContainer", "None"])
def test_mount_propagation_of_the_nodes_root(propagation: str) -> None:
    """On a node whose / is not a shared mount, runtimes accept only None."""
    objects = rendered({"mountPropagation": propagation, "installer": {"enabled": True}})
    default = rendered({"installer": {"enabled": True}})
    assert (objects == default) is (propagation == "HostToContainer")
    for name, volumes in (
        ("device-plugin", {"driver-root"}),
        ("installer", {"host"}),
    ):
        (inner,) = pod(objects, name)["containers"]
        mounts = [one for one in inner["volumeMounts"] if "mountPropagation" in one]
        found = {one["name"]: one["mountPropagation"] for one in mounts}
        assert found == dict.fromkeys(volumes, propagation)


def test_flat_values_set_the_plugins_options() -> None:
    overrides = read_overrides({}, variables(rendered(SETS["flat"])))
    values = {path: override.value for path, override in overrides.overrides.items()}
    assert values["flags.migStrategy"] == "none"
    assert values["flags.failOnInitError"] is False
    assert list(values["flags.plugin.deviceListStrategy"]) == ["envvar", "cdi-annotations"]  # type: ignore[call-overload]
    assert values["flags.plugin.deviceIDStrategy"] == "index"
    assert values["flags.nvidiaDriverRoot"] == "/run/nvidia/driver"
    assert values["flags.plugin.nvidiaCTKPath"] == "/opt/hook"
    assert (values["flags.gdrcopyEnabled"], values["flags.mofedEnabled"]) == (True, False)
    assert "flags.plugin.passDeviceSpecs" not in values
    (root,) = [o for o in pod(rendered(SETS["flat"]))["volumes"] if o["name"] == "driver-root"]
    assert root["hostPath"]["path"] == "/run/nvidia/driver"


def test_further_runtime_classes() -> None:
    """Each further name is a RuntimeClass and a name of the installer's runtime."""
    further = {"further": ["amd"], "labels": {"team": "gpu"}}
    objects = rendered({"runtimeClass": further, "installer": {"enabled": True}})
    classes = [one for one in objects if one["kind"] == "RuntimeClass"]
    assert [(one["metadata"]["name"], one["handler"]) for one in classes] == [
        ("nvidia", "nvidia"),
        ("amd", "amd"),
    ]
    assert classes[1]["metadata"]["labels"]["team"] == "gpu"
    args = container(objects, "installer")["args"]
    first = args.index("--runtime-name")
    assert args[first : first + 4] == ["--runtime-name", "nvidia", "--runtime-name", "amd"]


def test_arguments_of_the_installer() -> None:
    args = container(rendered(SETS["installer-all"]), "installer")["args"]
    assert args == [
        "node", "install", "--host-root", "/host", "--install-dir", "/var/opt/gpuhook",
        "--engine", "containerd", "--runtime-name", "gpuhook", "--route", "cdi",
        "--set-as-default", "--take-over", "--config", "/etc/containerd/config.toml",
        "--drop-in", "/etc/containerd/conf.d/g.toml", "--restart=signal", "--stay",
        "--undo-on-exit",
    ]  # fmt: skip
    args = container(rendered(SETS["installer-files-alone"]), "installer")["args"]
    assert args[-3:] == ["--engine", "none", "--stay"]
    args = container(rendered(SETS["installer"]), "installer")["args"]
    assert args[-2:] == ["--restart=auto", "--stay"]
    assert "--route" not in args


def test_installer_and_plugin_share_the_driver_root() -> None:
    """With the cdi route the installer copies no program that reads it."""
    values = {"nvidiaDriverRoot": "/run/nvidia/driver", "installer": {"enabled": True}}
    args = container(rendered(values), "installer")["args"]
    assert args[args.index("--driver-root") + 1] == "/run/nvidia/driver"
    assert variables(rendered(values))["NVIDIA_DRIVER_ROOT"] == "/run/nvidia/driver"
    values["installer"] = {"enabled": True, "route": "cdi"}
    assert "--driver-root" not in container(rendered(values), "installer")["args"]
    assert "--driver-root" not in container(rendered(SETS["installer"]), "installer")["args"]


def test_hook_path_of_the_plugin_is_that_of_the_installer() -> None:
    """Without an installer, or with the cdi route, the plugin searches the usual places."""
    hook = "NVIDIA_CDI_HOOK_PATH"
    assert variables(rendered(SETS["installer"]))[hook] == "/opt/gpuhook/bin/gpuhook-hook"
    assert hook not in variables(rendered({}))
    assert hook not in variables(rendered({"installer": {"enabled": True, "route": "cdi"}}))


def test_runtime_class_and_handler_share_a_name() -> None:
    """Pods, the class and the engine's handler have one name, unless values set another."""
    objects = rendered(SETS["beside"])
    assert one(objects, "RuntimeClass")["handler"] == "gpuhook"
    assert pod(objects)["runtimeClassName"] == "gpuhook"
    assert "runtimeClassName" not in pod(rendered(SETS["host-files"]))
    without_class = rendered({"runtimeClass": {"create": False}})
    assert not [o for o in without_class if o["kind"] == "RuntimeClass"]
    assert pod(without_class)["runtimeClassName"] == "nvidia"


def test_metrics_port_is_scraped() -> None:
    objects = rendered(SETS["metrics"])
    assert variables(objects)["GPUHOOK_METRICS_ADDRESS"] == ":9400"
    (port,) = container(objects)["ports"]
    (served,) = one(objects, "Service")["spec"]["ports"]
    assert (port["containerPort"], served["targetPort"]) == (9400, port["name"])
    for name, kind, key in (
        ("service-monitor", "ServiceMonitor", "endpoints"),
        ("pod-monitor", "PodMonitor", "podMetricsEndpoints"),
    ):
        (endpoint,) = one(rendered(SETS[name]), kind)["spec"][key]
        assert (endpoint["port"], endpoint["honorLabels"]) == ("metrics", True)


def test_chart_has_the_projects_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == __version__
    assert container(rendered({}))["image"] == f"gpuhook:{__version__}"


def test_helm_lint() -> None:
    command = [HELM, "lint", "--strict", str(CHART), "--namespace", "gpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", ["`gpuhook configure containerd` on each", "daemonset gpuhook-device-plugin"]),
        (
            "installer",
            ["to /opt/gpuhook of the nodes", "installer.undoOnExit=true, then uninstall"],
        ),
        ("installer-all", ["to /var/opt/gpuhook of the nodes", "the handler gpuhook in"]),
        ("dra", ["daemonset gpuhook-dra", "deviceclasses,resourceslices"]),
        ("nri", ["daemonset gpuhook-nri", "daemonset gpuhook-device-plugin"]),
    ],
)
def test_installation_notes(name: str, words: list[str], tmp_path: Path) -> None:
    """Helm prints them only after an installation: a copy of their template is rendered."""
    copy = tmp_path / "gpuhook"
    shutil.copytree(CHART, copy)
    text = '{{ dict "notes" (include (print $.Template.BasePath "/NOTES.txt") .) | toYaml }}'
    (copy / "templates/shown.yaml").write_text(text)
    command = [HELM, "template", "gpuhook", str(copy), "--namespace", "gpu", "--values", "-"]
    done = subprocess.run(
        [*command, "--show-only", "templates/shown.yaml"],
        input=json.dumps(SETS[name]),
        capture_output=True,
        text=True,
        check=True,
    )
    notes = yaml.safe_load(done.stdout)["notes"]
    assert all(word in notes for word in words), notes
    assert "\n\n\n" not in notes


def test_schema_and_values_have_the_same_keys() -> None:
    """Each key of values.yaml has a type, and each typed key is in values.yaml."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) - set(values) == {"global", "namespace"}
    assert_same_keys(schema, values, "")


def assert_same_keys(schema: dict[str, Any], values: dict[str, Any], where: str) -> None:
    """Assert that schema and values have the same keys, at each level."""
    assert schema["additionalProperties"] is False, where
    assert set(values) <= set(schema["properties"]), where
    for name, below in schema["properties"].items():
        if "properties" in below and name in values and name != "updateStrategy":
            assert set(below["properties"]) == set(values[name]), f"{where}.{name}"
            assert_same_keys(below, values[name], f"{where}.{name}")


def test_removed_default_is_refused_by_the_schema() -> None:
    """`--set features=null` removes the default: the schema refuses it, and no template fails."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert_required(schema, values, "")
    assert "features is required" in refused({"features": None})
    assert "metrics: service is required" in refused({"metrics": {"service": None}})


def assert_required(schema: dict[str, Any], values: dict[str, Any], where: str) -> None:
    """Assert that the schema requires each value that a template needs."""
    needed = set()
    for name, value in values.items():
        below = schema["properties"][name]
        if isinstance(value, dict) and "properties" in below:
            needed.add(name)
            assert_required(below, value, f"{where}.{name}")
        elif (isinstance(value, bool | int) and "null" not in below["type"]) or (
            isinstance(value, str) and value
        ):
            needed.add(name)
    assert set(schema.get("required", [])) == needed - {"priorityClassName", "updateStrategy"}, (
        where
    )


def test_configuration_names_and_indentation_are_kept() -> None:
    """YAML reads some of the names as other types; some texts begin with spaces."""
    wanted = {
        "on": "version: v1",
        "1": "version: v1",
        "default": "    # indented\nversion: v1\nflags: {}",
        "b": "\n  version: v1\n  flags: {}",
    }
    assert one(rendered({"config": {"map": wanted}}), "ConfigMap")["data"] == wanted


@pytest.mark.parametrize(
    "text",
    [
        "flags: {plugin: a, migStrategy: 3}",
        "gpuhook: {guard: kill}",
        "sharing: {timeSlicing: [a]}",
        "sharing: {timeSlicing: {resources: a}, mps: null}",
        "sharing: {timeSlicing: {resources: [a]}}",
    ],
)
def test_nested_faults_are_left_to_the_plugin(text: str) -> None:
    """No template fails with an error of Go."""
    assert rendered({"config": {"map": {"default": f"version: v1\n{text}\n"}}})


def test_removed_lists_are_empty() -> None:
    without = {
        "imagePullSecrets": None,
        "devicePlugin": {"env": None, "args": None, "imagePullSecrets": None},
        "config": {"map": {"default": "version: v1\n"}, "fallbackStrategies": None},
        "installer": {"enabled": True, "args": None},
        "updateStrategy": None,
        "tolerations": None,
    }
    objects = rendered(without)
    assert container(objects)["args"] == ["device-plugin"]
    assert "FALLBACK_STRATEGIES" not in variables(objects)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"nameOverride": "b" * 63}, f"gpuhook-{'b' * 40}"),
        ({"fullnameOverride": "a" * 47 + "-b"}, "a" * 47),
        ({"fullnameOverride": "a" * 46 + "--b"}, "a" * 46),
    ],
)
def test_long_names_are_shortened_to_valid_names(values: dict[str, Any], name: str) -> None:
    objects = rendered({**values, "installer": {"enabled": True}})
    assert one(objects, "DaemonSet", "installer")["metadata"]["name"] == f"{name}-installer"
    for obj in objects:
        name = obj["metadata"]["name"]
        assert NAME.fullmatch(name.replace(".", "-") if obj["kind"] == "DeviceClass" else name)


def test_release_name_with_dots() -> None:
    """The name of a Service has no dots, and the value of a label at most 63 characters."""
    objects = rendered({"metrics": {"enabled": True}}, release="gpu.hook")
    assert one(objects, "Service")["metadata"]["name"] == "gpu-hook-gpuhook-device-plugin"


def test_releases_of_one_name_in_two_namespaces() -> None:
    """Cluster-wide objects have the namespace in their names: releases do not share them."""
    values = {"gfd": {"labelNode": True}, "runtimeClass": {"create": False}}
    both = [rendered(values, namespace=name) for name in ("team-a", "team-b")]
    names = [
        {(o["kind"], o["metadata"]["name"]) for o in objects if o["kind"] in CLUSTER_WIDE}
        for objects in both
    ]
    assert len(names[0]) == 2
    assert not names[0] & names[1]


def test_top_level_resources_and_security_context_apply() -> None:
    """NVIDIA's chart has these keys at the top, empty by default."""
    plain = container(rendered({}))
    values = {"resources": {"limits": {"cpu": "2"}}, "securityContext": {"privileged": True}}
    changed = container(rendered(values))
    assert container(rendered({key: {} for key in values})) == plain
    assert changed["resources"]["limits"] == {"cpu": "2", "memory": "128Mi"}
    assert changed["securityContext"] == {"privileged": True}


def test_each_value_is_used() -> None:
    """A value that no template reads has no effect."""
    texts = [path.read_text() for path in (CHART / "templates").iterdir()]
    text = "\n".join(texts)
    for name in yaml.safe_load((CHART / "values.yaml").read_text()):
        assert f".Values.{name}" in text, name


def test_manifests_are_rendered_from_the_chart() -> None:
    """`make manifests` changes nothing."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("r", ROOT / "packaging/kubernetes/render.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, text in module.manifests(HELM).items():
        assert (ROOT / "packaging/kubernetes" / name).read_text() == text, name


def test_configurations_of_the_references_values_file() -> None:
    """The names in NVIDIA's values.yaml are accepted unchanged."""
    assert one(rendered(SETS["three"]), "ConfigMap")["data"] == {
        name: text.rstrip("\n") for name, text in THREE.items()
    }


def test_nodes_with_amd_gpus_only_need_no_handler() -> None:
    objects = rendered(SETS["amd-only"])
    spec = pod(objects)
    assert "runtimeClassName" not in spec
    env = variables(objects)
    assert env["GPUHOOK_AMD_RESOURCE_NAMING_STRATEGY"] == "mixed"
    assert env["GPUHOOK_AMD_PULSE"] == "30"
    assert env["GPUHOOK_DEVICE_LABELS"] == "vram,firmware"
    assert env["FAIL_ON_INIT_ERROR"] == "false"  # it waits for amdgpu
    assert "NVIDIA_VISIBLE_DEVICES" not in env
    assert container(objects)["securityContext"] == {"privileged": True}
    paths = [mount["mountPath"] for mount in container(objects)["volumeMounts"]]
    assert {"/dev/dri", "/var/lib/amd-metrics-exporter"} <= set(paths)
    assert "/var/run/nvidia-container-devices/all" not in paths
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    keys = [term["matchExpressions"][0]["key"] for term in required["nodeSelectorTerms"]]
    assert keys[0] == "feature.node.kubernetes.io/amd-gpu"
    names = ["pci-1002", *(f"pci-{name}_1002" for name in ("0300", "0302", "0380", "1200"))]
    assert {f"feature.node.kubernetes.io/{name}.present" for name in names} < set(keys)
    assert not [key for key in keys if "nvidia" in key or "10de" in key]
    assert "amd.com/gpu" in [one["key"] for one in spec["tolerations"]]


def test_amd_gpus_are_added_to_those_of_nvidia() -> None:
    objects = rendered(SETS["amd-and-nvidia"])
    spec, env = pod(objects), variables(objects)
    assert spec["runtimeClassName"] == "nvidia"
    assert env["GPUHOOK_AMD_DEVICE_LIST_STRATEGY"] == "envvar,cdi-cri"
    assert env["NVIDIA_VISIBLE_DEVICES"] == "all"
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    keys = [term["matchExpressions"][0]["key"] for term in required["nodeSelectorTerms"]]
    assert {"nvidia.com/gpu.present", "feature.node.kubernetes.io/amd-gpu"} <= set(keys)


def test_amd_gpus_are_left_to_another_plugin_by_default() -> None:
    env = variables(rendered({}))
    assert env["GPUHOOK_AMD_RESOURCE_NAMING_STRATEGY"] == "none"
    assert "GPUHOOK_DEVICE_LABELS" not in env
    objects = rendered(SETS["amd-unprivileged"])
    assert "privileged" not in container(objects)["securityContext"]
    assert "affinity" not in pod(objects)
