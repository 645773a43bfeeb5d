# SPDX-License-Identifier: Apache-2.0
"""`gpuhook config from-clusterpolicy`: what of a policy becomes values, and what is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from gpuhook.cli import main
from gpuhook.diagnose.cluster_policy import mapping
from gpuhook.diagnose.cluster_policy.documents import Policy
from gpuhook.diagnose.cluster_policy.left_out import ANYWAY, PLUGINS_CHART, WHERE_ENABLED
from gpuhook.diagnose.cluster_policy.variables import TOOLKIT, TOOLKIT_REMARKS
from tests.charts.rendering import CHART, container, one, pod, rendered, variables
from tests.charts.values import OPERATORS
from tests.kubelet import config_map

SCHEMA = jsonschema.Draft7Validator(json.loads((CHART / "values.schema.json").read_text()))
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())


def problems(values: dict[str, Any]) -> list[str]:
    """Return what the schema says of values on top of the chart's own, as Helm asks it."""
    return [error.message for error in SCHEMA.iter_errors(on_top(values, DEFAULTS))]


def on_top(values: dict[str, Any], below: dict[str, Any]) -> dict[str, Any]:
    both = {
        key: on_top(value, below[key])
        if isinstance(value, dict) and isinstance(below.get(key), dict)
        else value
        for key, value in values.items()
    }
    return {**below, **both}


# As the operator 25.3 makes it of its chart's defaults, on a cluster with time slicing.
POLICY = """\
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata:
  name: cluster-policy
spec:
  operator:
    defaultRuntime: docker
    runtimeClass: nvidia
    initContainer: {image: cuda, repository: nvcr.io/nvidia, version: 12.8.1-base-ubi9}
  daemonsets:
    labels: {helm.sh/chart: gpu-operator-v25.3.1}
    tolerations:
    - {effect: NoSchedule, key: nvidia.com/gpu, operator: Exists}
    priorityClassName: system-node-critical
    updateStrategy: RollingUpdate
    rollingUpdate: {maxUnavailable: "1"}
  driver:
    enabled: true
    image: driver
    rdma: {enabled: false, useHostMofed: false}
  toolkit:
    enabled: true
    repository: nvcr.io/nvidia/k8s
    image: container-toolkit
    version: v1.17.8-ubuntu20.04
    installDir: /usr/local/nvidia
    env:
    - {name: CONTAINERD_CONFIG, value: /etc/containerd/config.toml}
    - {name: CONTAINERD_SOCKET, value: /run/containerd/containerd.sock}
    - {name: CONTAINERD_SET_AS_DEFAULT, value: "true"}
    - {name: ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED, value: "false"}
  devicePlugin:
    enabled: true
    repository: nvcr.io/nvidia
    image: k8s-device-plugin
    version: v0.17.2
    env:
    - {name: PASS_DEVICE_SPECS, value: "true"}
    - {name: DEVICE_LIST_STRATEGY, value: envvar}
    - {name: CDI_FEATURE_FLAGS, value: x}
    config: {name: device-plugin-config, default: default}
    mps: {root: /run/nvidia/mps}
  cdi: {enabled: false, default: false}
  mig: {strategy: single}
  migManager: {enabled: true}
  gfd: {enabled: true, version: v0.17.2}
  dcgmExporter: {enabled: true, serviceMonitor: {enabled: true}}
  vfioManager: {enabled: false}
  hostPaths: {rootFS: /, driverInstallDir: /run/nvidia/driver}
"""


def converted(text: str, tmp_path: Path, *options: str) -> tuple[dict[str, Any], list[str]]:
    """Return the values that are printed, and the warnings."""
    path = tmp_path / "policy.yaml"
    path.write_text(text, encoding="utf-8")
    result = ran("config", "from-clusterpolicy", str(path), *options)
    assert result.exit_code == 0, result.stderr
    prefix = f"warning: {path}: "
    lines = result.stderr.splitlines()
    assert all(line.startswith(prefix) for line in lines)
    return yaml.safe_load(result.stdout), [line.removeprefix(prefix) for line in lines]


def ran(*words: str, given_text: str | None = None) -> Result:
    return CliRunner().invoke(main, words, input=given_text)


def test_a_policy_becomes_values_that_the_chart_takes(tmp_path: Path) -> None:
    values, _ = converted(POLICY, tmp_path)
    objects = rendered(values)
    args = container(objects, "installer")["args"]
    assert args[args.index("--engine") + 1] == "auto"
    assert args[args.index("--config") + 1] == "/etc/containerd/config.toml"
    assert args[args.index("--install-dir") + 1] == "/usr/local/nvidia/gpuhook"
    assert "--set-as-default" in args
    env = variables(objects)
    assert env["MIG_STRATEGY"] == "single"
    assert env["NVIDIA_DRIVER_ROOT"] == "/run/nvidia/driver"
    assert env["DEVICE_LIST_STRATEGY"] == "envvar"
    assert env["DEFAULT_CONFIG"] == "default"
    assert pod(objects)["tolerations"] == [
        {"effect": "NoSchedule", "key": "nvidia.com/gpu", "operator": "Exists"}
    ]
    assert one(objects, "DaemonSet", "plugin")["spec"]["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1},
    }
    assert one(objects, "ServiceMonitor")
    assert [v["configMap"]["name"] for v in pod(objects)["volumes"] if "configMap" in v] == [
        "device-plugin-config"
    ]


def test_what_cannot_be_taken_over_is_told_by_name(tmp_path: Path) -> None:
    _, warnings = converted(POLICY, tmp_path)
    named = [warning.partition(": ")[0] for warning in warnings]
    assert named == [
        "driver.enabled",
        "toolkit.env CONTAINERD_SOCKET",
        "toolkit.env ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED",
        "devicePlugin.env",
        "devicePlugin.config",
        "migManager",
        "dcgmExporter",
    ]
    assert "CDI_FEATURE_FLAGS" in warnings[3]


def test_another_root_of_the_node_is_told() -> None:
    said = [mapping.converted(Policy({"hostPaths": {"rootFS": p}})).remarks for p in ("/", "/h")]
    assert [any("rootFS" in remark for remark in one) for one in said] == [False, True]


def test_labels_of_the_operators_chart_stay_its_own() -> None:
    own = {"helm.sh/chart": "gpu-operator-v25.3.1", "app.kubernetes.io/name": "x", "team": "y"}
    found = mapping.converted(Policy({"daemonsets": {"labels": own}}))
    assert found.values["podLabels"] == {"team": "y"}


def test_the_config_map_beside_the_policy_is_taken_unchanged(tmp_path: Path) -> None:
    """As a list, and as documents: `kubectl get -o yaml` prints both."""
    own = config_map.OPERATORS.read_text()
    values, warnings = converted(f"{POLICY}---\n{own}", tmp_path)
    assert one(rendered(values), "ConfigMap")["data"] == config_map.data()
    assert not [warning for warning in warnings if "devicePlugin.config" in warning]
    both = {"kind": "List", "items": [yaml.safe_load(POLICY), yaml.safe_load(own)]}
    assert converted(yaml.safe_dump(both), tmp_path)[0] == values


def test_a_faulty_configuration_is_told(tmp_path: Path) -> None:
    text = yaml.safe_dump(
        {"devicePlugin": {"config": {"create": True, "data": {"a": "version: 2"}}}}
    )
    _, warnings = converted(text, tmp_path)
    assert any(warning.startswith("the configuration a") for warning in warnings)


def test_the_operators_values_are_taken(tmp_path: Path) -> None:
    """The block that people have in their values.yaml, with one for Node Feature Discovery."""
    nfd: dict[str, Any] = {"node-feature-discovery": {"worker": {"affinity": {}}}}
    values, warnings = converted(yaml.safe_dump(OPERATORS | nfd), tmp_path)
    env = {entry["name"]: entry["value"] for entry in OPERATORS["devicePlugin"]["env"]}
    assert env.items() <= variables(rendered(values)).items()
    assert one(rendered(values), "ConfigMap")["data"] == config_map.data()
    assert [warning.partition(":")[0] for warning in warnings] == [
        "node-feature-discovery",
        "driver.enabled",
    ]


def test_standard_input_and_a_file_for_the_values(tmp_path: Path) -> None:
    target = tmp_path / "values.yaml"
    done = ran("config", "from-clusterpolicy", "-", "--output", str(target), given_text=POLICY)
    assert done.exit_code == 0
    assert f"wrote {target}, with 7 remarks" in done.stderr + done.stdout
    text = target.read_text()
    assert problems(yaml.safe_load(text)) == []
    assert "#   migManager: " in text


def test_configurations_are_written_to_be_read(tmp_path: Path) -> None:
    target = tmp_path / "values.yaml"
    both = f"{POLICY}---\n{config_map.OPERATORS.read_text()}"
    ran("config", "from-clusterpolicy", "-", "--output", str(target), given_text=both)
    assert "          replicas: 4\n" in target.read_text().replace("            ", "          ")
    assert "\\n" not in target.read_text()


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("a: [b", "GH2130", "expected"),
        ("x: 1\n", "GH2131", "neither"),
        ("", "GH2131", "neither"),
        (f"{POLICY}---\n{POLICY}", "GH2131", "more than one"),
        ("kind: ClusterPolicy\nspec: [1]\n", "GH2131", "without sections"),
        ("---\n" + "--- {a: 1}\n" * 101, "GH2131", "neither"),
        ("a: 1\n---\n" * 101, "GH2130", "more than 100 documents"),
        ("#" * (2 << 20), "GH2130", "larger"),
    ],
)
def test_what_is_no_policy_is_refused(text: str, code: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    done = ran("config", "from-clusterpolicy", str(path))
    assert done.exit_code != 0
    assert code in done.stderr
    assert words in done.stderr


def test_standard_input_is_called_so() -> None:
    done = ran("config", "from-clusterpolicy", "-", given_text="x: 1\n")
    assert "GH2131: standard input has no policy" in done.stderr
    done = ran("config", "from-clusterpolicy", "-", given_text=POLICY)
    assert "warning: -:" not in done.stderr


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = ran("config", "from-clusterpolicy", str(tmp_path / "none"))
    assert "GH2130" in done.stderr
    assert "No such file" in done.stderr


def test_an_image_that_is_not_nvidias_stays(tmp_path: Path) -> None:
    """Who has the operator run gpuhook's goes on with that one."""
    values, _ = converted(yaml.safe_dump(OPERATORS), tmp_path)
    assert container(rendered(values))["image"] == "registry.example/gpus/gpuhook:v0.1.0"
    assert "image" not in converted(POLICY, tmp_path)[0]["devicePlugin"]


def test_an_empty_policy_is_one(tmp_path: Path) -> None:
    values, warnings = converted("kind: ClusterPolicy\n", tmp_path)
    assert values == {}
    assert [warning.partition(":")[0] for warning in warnings] == ["driver.enabled"]


def test_every_section_that_is_on_has_its_word() -> None:
    for section in WHERE_ENABLED:
        said = [
            mapping.converted(Policy({section: {"enabled": on}})).remarks for on in (True, False)
        ]
        assert [any(r.startswith(f"{section}: ") for r in one) for one in said] == [True, False]


@pytest.mark.parametrize("name", sorted(TOOLKIT))
def test_a_variable_of_the_toolkit_is_a_value_that_there_is(name: str) -> None:
    texts = ["true", "/a/b", "crio", "nvidia"]
    found = [
        mapping.converted(Policy({"toolkit": {"env": [{"name": name, "value": text}]}})).values
        for text in texts
    ]
    assert any(found)
    assert [problems(values) for values in found] == [[]] * len(found)


SCALARS = st.sampled_from(
    [
        "",
        "/",
        "/a",
        "nvidia",
        "none",
        "mixed",
        "true",
        "OnDelete",
        "RollingUpdate",
        "crio",
        "Always",
    ]
) | st.one_of(st.none(), st.booleans(), st.integers(-2, 9), st.text(max_size=4))
ENTRIES = st.fixed_dictionaries(
    {"name": st.sampled_from([*TOOLKIT, *TOOLKIT_REMARKS, "MIG_STRATEGY", "X", ""]) | SCALARS},
    optional={"value": SCALARS},
)
ANYTHING = st.recursive(
    SCALARS | st.lists(ENTRIES, max_size=3),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(SCALARS, below, max_size=2),
    max_leaves=5,
)
SECTIONS = sorted({path.partition(".")[0] for path in mapping._SAME} | {"cdi", "hostPaths"})
KEYS = sorted({path.partition(".")[2] for path in mapping._SAME} | {
    "config", "driverInstallDir", "enabled", "env", "image", "imagePullSecrets", "installDir",
    "labels", "mps", "rdma", "rollingUpdate", "updateStrategy",
})  # fmt: skip
CONFIGS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("create", "name", "default", "data"), ANYTHING)
)
POLICIES = st.dictionaries(
    st.sampled_from([*SECTIONS, *ANYWAY, *WHERE_ENABLED, "other"]),
    st.dictionaries(st.sampled_from(KEYS), ANYTHING | CONFIGS, max_size=4) | ANYTHING,
    max_size=4,
)


@given(sections=POLICIES)
@example(sections={"devicePlugin": {"config": {"name": "a", "create": True, "data": {"/": "x"}}}})
@example(sections={"devicePlugin": {"config": {"name": "A b"}}})
@example(sections={"daemonsets": {"labels": {"app.kubernetes.io/name": "x", "a": "b"}}})
@example(sections={"daemonsets": {"updateStrategy": "RollingUpdate", "rollingUpdate": 1}})
@example(sections={"devicePlugin": {"repository": "r", "image": "a b", "version": "1"}})
@example(sections={"devicePlugin": {"repository": "r e", "image": "a", "version": "1:2"}})
@examples(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_policy_becomes_values_that_the_schema_takes(sections: dict[str, Any]) -> None:
    found = mapping.converted(Policy(sections))
    assert problems(found.values) == []
    assert all(isinstance(remark, str) for remark in found.remarks)


def test_values_of_the_plugins_chart_are_told_to_be_such() -> None:
    """They have the same names in gpuhook's chart: nobody is told that it has no such value."""
    sections = {"config": {"map": {"default": "version: v1"}}, "resources": {"limits": {"cpu": 1}}}
    remarks = mapping.converted(Policy({**sections, "other": 1})).remarks
    assert "other: gpuhook has no such value" in remarks
    for path in ("config.map", "resources.limits"):
        assert [
            one for one in remarks if one.startswith(f"{path}: is a value of the device plugin")
        ]


def test_sections_of_the_plugins_chart_are_values_of_this_one() -> None:
    assert set(DEFAULTS) >= PLUGINS_CHART
