# SPDX-License-Identifier: Apache-2.0
"""The chart's objects fit each other, the plugin's options and Kubernetes, for all values."""

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
from tests.charts.values import OPERATORS, SETS, THREE
from tests.kubelet import config_map

CLUSTER_WIDE = {"RuntimeClass", "ClusterRole", "ClusterRoleBinding"}
OF_THE_RUNTIME = {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}
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
}
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
every = pytest.mark.parametrize("values", SETS.values(), ids=SETS.keys())


def daemon_sets(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [found for found in objects if found["kind"] == "DaemonSet"]


def test_there_are_enough_sets() -> None:
    assert len(SETS) >= 25


@every
def test_objects_are_kubernetes_own(values: dict[str, Any]) -> None:
    """Each kind has its API's name, one object of a name, and its namespace where it has one."""
    objects = rendered(values)
    assert len({(o["kind"], o["metadata"]["name"]) for o in objects}) == len(objects)
    for found in objects:
        assert KNOWN[found["kind"]] == found["apiVersion"]
        assert NAME.fullmatch(found["metadata"]["name"])
        wanted = None if found["kind"] in CLUSTER_WIDE else values.get("namespaceOverride", "gpu")
        assert found["metadata"].get("namespace") == wanted
        assert all(type(text) is str for text in found["metadata"]["labels"].values())


@every
def test_selectors_select_their_own_pods(values: dict[str, Any]) -> None:
    objects = rendered(values)
    labels = []
    for found in daemon_sets(objects):
        wanted = found["spec"]["selector"]["matchLabels"]
        labels.append(found["spec"]["template"]["metadata"]["labels"])
        assert wanted.items() <= labels[-1].items()
        assert [o for o in labels if wanted.items() <= o.items()] == [labels[-1]]
    for found in objects:
        if found["kind"] == "Service":
            assert found["spec"]["selector"].items() <= labels[0].items()
        elif found["kind"] == "ServiceMonitor":
            service = one(objects, "Service")
            selector = found["spec"]["selector"]["matchLabels"]
            assert selector.items() <= service["metadata"]["labels"].items()
        elif found["kind"] == "PodMonitor":
            assert found["spec"]["selector"]["matchLabels"].items() <= labels[0].items()


@every
def test_mounts_are_volumes_and_volumes_are_mounted(values: dict[str, Any]) -> None:
    objects = rendered(values)
    for found in daemon_sets(objects):
        spec = found["spec"]["template"]["spec"]
        (inner,) = spec["containers"]
        mounts = [mount["name"] for mount in inner["volumeMounts"]]
        assert sorted(mounts) == sorted(volume["name"] for volume in spec["volumes"])
        paths = [mount["mountPath"] for mount in inner["volumeMounts"]]
        assert len(set(paths)) == len(paths)
        for volume in spec["volumes"]:
            assert len(volume) == 2
            if "configMap" in volume:
                assert_is_there(volume["configMap"]["name"], objects, values)
            else:
                assert volume["hostPath"]["path"].startswith("/")


def assert_is_there(name: str, objects: list[dict[str, Any]], values: dict[str, Any]) -> None:
    """Fail unless the chart makes that ConfigMap, or the values name it."""
    made = [o["metadata"]["name"] for o in objects if o["kind"] == "ConfigMap"]
    outside = values.get("config") or values["devicePlugin"]["config"]
    assert name in made or (not made and name == outside["name"])


@every
def test_every_variable_is_one_that_counts(values: dict[str, Any]) -> None:
    objects = rendered(values)
    if not values.get("devicePlugin", {}).get("enabled", True):
        assert not [o for o in daemon_sets(objects) if "plugin" in o["metadata"]["name"]]
        return
    found = variables(objects)
    known = {name for option in OPTIONS if not option.ignored for name in option.variables}
    assert found.keys() - OF_THE_RUNTIME - known == set()
    said = read_overrides({}, found)
    assert said.findings == []
    assert launch(said).plugin_directory == "/var/lib/kubelet/device-plugins"


@every
def test_arguments_are_those_of_the_commands(values: dict[str, Any]) -> None:
    """Click's own parser takes what the containers are started with."""
    for found in daemon_sets(rendered(values)):
        (inner,) = found["spec"]["template"]["spec"]["containers"]
        name, *words = inner["args"]
        context = click.Context(main)
        command = main.get_command(context, name)
        assert command is not None, name
        words = ["/" if word == "/host" else word for word in words]  # has to be there
        command.make_context(name, words, parent=context).close()


@every
def test_the_role_is_for_the_pods_account(values: dict[str, Any]) -> None:
    """A pod has a token exactly if there is a rule for it; no other pod has one."""
    objects = rendered(values)
    roles = [o for o in objects if o["kind"] == "ClusterRole"]
    for found in daemon_sets(objects):
        spec = found["spec"]["template"]["spec"]
        is_plugin = found["metadata"]["name"].endswith("plugin")
        assert spec["automountServiceAccountToken"] is (is_plugin and bool(roles))
    for role in roles:
        assert role["rules"]
        binding = one(objects, "ClusterRoleBinding")
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        (subject,) = binding["subjects"]
        account = subject["name"]
        assert account == pod(objects)["serviceAccountName"]
        made = [o["metadata"]["name"] for o in objects if o["kind"] == "ServiceAccount"]
        assert account in made or account == values["serviceAccount"]["name"]


def granted(values: dict[str, Any]) -> set[tuple[str, str]]:
    return {
        (verb, resource)
        for role in rendered(values)
        if role["kind"] == "ClusterRole"
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_rules_are_what_the_values_need() -> None:
    label = {("get", "nodes"), ("watch", "nodes")}
    assert granted(SETS["nothing"]) == granted(OPERATORS) == granted(SETS["time-slicing"]) == set()
    assert granted(SETS["three"]) == granted(SETS["external"]) == label
    assert granted(SETS["no-label-access"]) == set()
    assert granted(SETS["events-alone"]) == {("create", "events")}
    assert granted(SETS["api"]) == {*label, ("create", "events"), ("patch", "nodes")}


def test_the_operators_block_counts_as_it_stands() -> None:
    """Image, variables and configuration are what the block says, the text to the letter."""
    objects = rendered(OPERATORS)
    own = OPERATORS["devicePlugin"]
    assert container(objects)["image"] == "registry.example/gpus/gpuhook:v0.1.0"
    env = {entry["name"]: entry["value"] for entry in own["env"]}
    assert env.items() <= variables(objects).items()
    found = one(objects, "ConfigMap")
    assert found["metadata"]["name"] == "device-plugin-config"
    assert found["data"] == own["config"]["data"] == config_map.data()
    assert variables(objects)["DEFAULT_CONFIG"] == "default"


@every
def test_configurations_are_unchanged_and_faultless(values: dict[str, Any]) -> None:
    own = values.get("config", {}).get("map")
    wanted = own or values.get("devicePlugin", {}).get("config", {}).get("data", {})
    made = [o["data"] for o in rendered(values) if o["kind"] == "ConfigMap"]
    assert made == ([{k: v.rstrip("\n") for k, v in wanted.items()}] if wanted else [])
    for name, text in wanted.items():
        overrides = read_overrides({}, variables(rendered(values))).overrides
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
def test_capabilities_are_those_that_the_configurations_need(
    name: str, added: list[str] | None
) -> None:
    assert container(rendered(SETS[name]))["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], **({"add": added} if added else {})},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.parametrize(
    "name", ["mps", "mps-elsewhere", "host-files", "no-handler", "own-security"]
)
def test_few_things_need_a_privileged_container(name: str) -> None:
    assert container(rendered(SETS[name]))["securityContext"] == {"privileged": True}


def test_mps_daemons_have_their_directory() -> None:
    objects = rendered(SETS["mps-elsewhere"])
    found = variables(objects)
    assert (found["MPS_ROOT"], found["NVIDIA_DRIVER_CAPABILITIES"]) == (
        "/var/lib/mps",
        "compute,utility",
    )
    (mount,) = [o for o in container(objects)["volumeMounts"] if o["name"] == "mps"]
    (volume,) = [o for o in pod(objects)["volumes"] if o["name"] == "mps"]
    assert mount["mountPath"] == volume["hostPath"]["path"] == "/var/lib/mps"


@pytest.mark.parametrize("propagation", ["HostToContainer", "None"])
def test_the_nodes_root_is_mounted_with_the_chosen_propagation(propagation: str) -> None:
    """Of a node whose / is not a shared mount a runtime takes none but None."""
    objects = rendered({"mountPropagation": propagation, "installer": {"enabled": True}})
    default = rendered({"installer": {"enabled": True}})
    assert (objects == default) is (propagation == "HostToContainer")
    for name, volume in (("device-plugin", "driver-root"), ("installer", "host")):
        (own,) = pod(objects, name)["containers"]
        mounts = [one for one in own["volumeMounts"] if "mountPropagation" in one]
        assert [(one["name"], one["mountPropagation"]) for one in mounts] == [(volume, propagation)]


def test_flat_values_are_the_plugins_options() -> None:
    said = read_overrides({}, variables(rendered(SETS["flat"])))
    values = {path: override.value for path, override in said.overrides.items()}
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


def test_the_installer_says_what_the_values_say() -> None:
    args = container(rendered(SETS["installer-all"]), "installer")["args"]
    assert args == [
        "install", "--host-root", "/host", "--install-dir", "/var/opt/gpuhook",
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


def test_the_installer_and_the_plugin_have_one_driver_root() -> None:
    """Programs of the node read what the installer sets; with the route cdi there are none."""
    values = {"nvidiaDriverRoot": "/run/nvidia/driver", "installer": {"enabled": True}}
    args = container(rendered(values), "installer")["args"]
    assert args[args.index("--driver-root") + 1] == "/run/nvidia/driver"
    assert variables(rendered(values))["NVIDIA_DRIVER_ROOT"] == "/run/nvidia/driver"
    values["installer"] = {"enabled": True, "route": "cdi"}
    assert "--driver-root" not in container(rendered(values), "installer")["args"]
    assert "--driver-root" not in container(rendered(SETS["installer"]), "installer")["args"]


def test_the_hook_is_where_the_installer_puts_it() -> None:
    """Else the plugin looks in the usual places; the route cdi copies nothing."""
    hook = "NVIDIA_CDI_HOOK_PATH"
    assert variables(rendered(SETS["installer"]))[hook] == "/opt/gpuhook/bin/gpuhook-hook"
    assert hook not in variables(rendered({}))
    assert hook not in variables(rendered({"installer": {"enabled": True, "route": "cdi"}}))


def test_runtimes_go_together() -> None:
    """Pods, the class and the engine's handler share one name, unless values set another."""
    objects = rendered(SETS["beside"])
    assert one(objects, "RuntimeClass")["handler"] == "gpuhook"
    assert pod(objects)["runtimeClassName"] == "gpuhook"
    assert "runtimeClassName" not in pod(rendered(SETS["host-files"]))
    kept = rendered({"runtimeClass": {"create": False}})
    assert not [o for o in kept if o["kind"] == "RuntimeClass"]
    assert pod(kept)["runtimeClassName"] == "nvidia"


def test_metrics_are_where_they_are_scraped() -> None:
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


def test_the_chart_has_the_projects_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == __version__
    assert container(rendered({}))["image"] == f"gpuhook:{__version__}"


def test_helm_has_nothing_to_say() -> None:
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
    ],
)
def test_notes_say_what_to_look_at(name: str, words: list[str], tmp_path: Path) -> None:
    """Helm shows them after an installation alone, so a copy of their template is rendered."""
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


def test_the_schema_has_the_keys_of_the_values() -> None:
    """No key of values.yaml is without a type, and no typed key is unknown to values.yaml."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) - set(values) == {"global", "namespace"}
    assert_alike(schema, values, "")


def assert_alike(schema: dict[str, Any], values: dict[str, Any], where: str) -> None:
    """Fail if the two differ; the message names the keys down to the last object."""
    assert schema["additionalProperties"] is False, where
    assert set(values) <= set(schema["properties"]), where
    for name, below in schema["properties"].items():
        if "properties" in below and name in values and name != "updateStrategy":
            assert set(below["properties"]) == set(values[name]), f"{where}.{name}"
            assert_alike(below, values[name], f"{where}.{name}")


def test_a_value_that_is_taken_away_is_missed() -> None:
    """`--set features=null` takes the default away: the schema says so, and no template fails."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert_missed(schema, values, "")
    assert "features is required" in refused({"features": None})
    assert "metrics: service is required" in refused({"metrics": {"service": None}})


def assert_missed(schema: dict[str, Any], values: dict[str, Any], where: str) -> None:
    """Fail unless all is required that a template reads below, or writes as it is."""
    needed = set()
    for name, value in values.items():
        below = schema["properties"][name]
        if isinstance(value, dict) and "properties" in below:
            needed.add(name)
            assert_missed(below, value, f"{where}.{name}")
        elif (isinstance(value, bool | int) and "null" not in below["type"]) or (
            isinstance(value, str) and value
        ):
            needed.add(name)
    assert set(schema.get("required", [])) == needed - {"priorityClassName", "updateStrategy"}, (
        where
    )


def test_configurations_of_any_name_and_indentation_are_the_same_text() -> None:
    """Names that YAML takes for other things than texts, texts that begin with spaces."""
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
def test_what_is_wrong_further_down_is_the_plugins_to_say(text: str) -> None:
    """No template ends with words of Go's."""
    assert rendered({"config": {"map": {"default": f"version: v1\n{text}\n"}}})


def test_lists_that_are_taken_away_are_empty() -> None:
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
def test_long_names_are_cut_to_names(values: dict[str, Any], name: str) -> None:
    objects = rendered({**values, "installer": {"enabled": True}})
    assert one(objects, "DaemonSet", "installer")["metadata"]["name"] == f"{name}-installer"
    for found in objects:
        assert NAME.fullmatch(found["metadata"]["name"])


def test_a_releases_name_may_have_dots() -> None:
    """A Service's may not; nor may a label's value be longer than 63."""
    objects = rendered({"metrics": {"enabled": True}}, release="gpu.hook")
    assert one(objects, "Service")["metadata"]["name"] == "gpu-hook-gpuhook-device-plugin"


def test_two_releases_of_one_name_are_two_in_a_cluster() -> None:
    """What has no namespace is named after it: a release takes no other's permissions away."""
    values = {"gfd": {"labelNode": True}, "runtimeClass": {"create": False}}
    both = [rendered(values, namespace=name) for name in ("team-a", "team-b")]
    names = [
        {(o["kind"], o["metadata"]["name"]) for o in objects if o["kind"] in CLUSTER_WIDE}
        for objects in both
    ]
    assert len(names[0]) == 2
    assert not names[0] & names[1]


def test_the_plugin_charts_places_count_more() -> None:
    """NVIDIA's chart has resources and securityContext at the top, empty if nothing is said."""
    plain = container(rendered({}))
    values = {"resources": {"limits": {"cpu": "2"}}, "securityContext": {"privileged": True}}
    said = container(rendered(values))
    assert container(rendered({key: {} for key in values})) == plain
    assert said["resources"]["limits"] == {"cpu": "2", "memory": "128Mi"}
    assert said["securityContext"] == {"privileged": True}


def test_every_value_is_used() -> None:
    """A value that no template reads would do nothing."""
    texts = [path.read_text() for path in (CHART / "templates").iterdir()]
    text = "\n".join(texts)
    for name in yaml.safe_load((CHART / "values.yaml").read_text()):
        assert f".Values.{name}" in text, name


def test_the_manifests_are_the_charts() -> None:
    """`make manifests` would write what is there."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("r", ROOT / "packaging/kubernetes/render.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, text in module.manifests(HELM).items():
        assert (ROOT / "packaging/kubernetes" / name).read_text() == text, name


def test_three_configurations_are_the_references() -> None:
    """The names that the reference's own values.yaml shows are taken, whole."""
    assert one(rendered(SETS["three"]), "ConfigMap")["data"] == {
        name: text.rstrip("\n") for name, text in THREE.items()
    }
