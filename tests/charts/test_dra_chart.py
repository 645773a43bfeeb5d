# SPDX-License-Identifier: Apache-2.0
"""The chart's objects of the DRA driver: one offer for each GPU, and the least permissions."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
import yaml

from gpuhook.cli.dra.dra_run import OPTIONS
from gpuhook.device_plugin.config.launch_options import Launch
from gpuhook.device_plugin.health import health_marks
from gpuhook.dra.dra_options import DraLaunch
from gpuhook.vendors.catalogue import vendors
from tests.charts.rendering import ROOT, container, one, pod, refused, rendered, variables
from tests.charts.values import DRA, SETS, TIME_SLICES

# Keys of /etc/gpuhook/config.yaml.
NODE_SETTINGS = {"nri.namespaces", "nri.managementNamespaces", "nri.runtimeClasses", "nri.devices"}
BESIDE = SETS["dra-beside-the-plugin"]
NAMES = {"gpu.nvidia.com": "nvidia.com/gpu", "gpu.amd.com": "amd.com/gpu"}
CLASSES = {"gpu.nvidia.com", "mig.nvidia.com", "gpu.amd.com"}


def classes(values: dict[str, Any], version: str) -> dict[str, dict[str, Any]]:
    """Return the device classes for a version of Kubernetes, by name."""
    objects = rendered(values, "--kube-version", version)
    return {o["metadata"]["name"]: o for o in objects if o["kind"] == "DeviceClass"}


def terms(spec: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Return the expressions of each term of a pod's node affinity."""
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [term["matchExpressions"] for term in required["nodeSelectorTerms"]]


def test_drivers_are_those_of_the_vendors() -> None:
    wanted = {vendor.dra_driver for vendor in vendors()}
    objects = rendered(BESIDE)
    rule = one(objects, "ClusterRole", "-dra")["rules"][-1]
    assert set(rule["resourceNames"]) == wanted
    mounts = {one["mountPath"] for one in container(objects, "-dra")["volumeMounts"]}
    plugins = "/var/lib/kubelet/plugins/"
    assert {path for path in mounts if path.startswith(plugins)} == {plugins + w for w in wanted}


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ("none", {"gpu.nvidia.com", "mig.nvidia.com"}),
        ("mixed", CLASSES),
        ("only", {"gpu.amd.com"}),
    ],
)
def test_classes_are_those_of_the_nodes_vendors(nodes: str, names: set[str]) -> None:
    found = classes(DRA | {"amd": {"nodes": nodes}}, "1.36.0")
    assert found.keys() == names
    for obj in found.values():
        (selector,) = obj["spec"]["selectors"]
        driver = "gpu.amd.com" if "amd" in obj["metadata"]["name"] else "gpu.nvidia.com"
        assert f"device.driver == '{driver}'" in selector["cel"]["expression"]


@pytest.mark.parametrize(
    ("version", "api", "names"),
    [
        ("1.32.0", "v1beta1", {}),
        ("1.33.9", "v1beta1", {}),
        ("1.34.1", "v1", {}),
        ("1.35.5", "v1", {}),
        ("1.36.0-alpha.1", "v1", NAMES),
        ("1.37.2", "v1", NAMES),
    ],
)
def test_extended_resources_follow_the_server(
    version: str, api: str, names: dict[str, str]
) -> None:
    """An older server would drop the name without an error."""
    found = classes(DRA | {"amd": {"nodes": "mixed"}}, version)
    assert {obj["apiVersion"] for obj in found.values()} == {f"resource.k8s.io/{api}"}
    have = {name: obj["spec"].get("extendedResourceName") for name, obj in found.items()}
    assert have == dict.fromkeys(CLASSES) | names


@pytest.mark.parametrize(
    ("profile", "word"),
    [("1g.10gb", "mig-1g.10gb"), ("1g.5gb+me", "mig-1g.5gb.me"), ("1c.2g.10gb", "mig-1c.2g.10gb")],
)
def test_class_of_a_mig_profile(profile: str, word: str) -> None:
    """The resource has the name that the device plugin gives it."""
    made = {"create": True, "migProfiles": [profile]}
    dra: dict[str, Any] = {"enabled": True, "deviceClasses": made}
    spec = classes(DRA | {"dra": dra}, "1.36.0")[f"{word}.nvidia.com"]["spec"]
    assert spec["extendedResourceName"] == f"nvidia.com/{word}"
    assert f".profile == '{profile}'" in spec["selectors"][0]["cel"]["expression"]
    dra["extendedResourceNames"] = {}
    spec = classes(DRA | {"dra": dra}, "1.36.0")[f"{word}.nvidia.com"]["spec"]
    assert "extendedResourceName" not in spec


def test_extended_resources_of_the_values() -> None:
    values = DRA | {"dra": {"enabled": True, "extendedResourceNames": {}}}
    found = classes(values, "1.36.0")
    assert not any("extendedResourceName" in obj["spec"] for obj in found.values())
    values["dra"]["extendedResourceNames"] = {"mig.nvidia.com": "example.com/slice"}
    found = classes(values, "1.34.0")
    assert found["mig.nvidia.com"]["spec"]["extendedResourceName"] == "example.com/slice"
    assert "extendedResourceName" not in found["gpu.nvidia.com"]["spec"]


@pytest.mark.parametrize("affinity", [{}, {"affinity": None}, {"affinity": {"podAffinity": {}}}])
def test_each_node_has_the_plugin_or_the_driver(affinity: dict[str, Any]) -> None:
    """Each term of both affinities has the label, with opposite operators."""
    objects = rendered(BESIDE | affinity)
    for name, operator in (("device-plugin", "NotIn"), ("-dra", "In")):
        found = terms(pod(objects, name))
        wanted = {"key": "example.com/gpus", "operator": operator, "values": ["dra"]}
        assert found
        assert all(wanted in expressions for expressions in found)


def test_label_without_the_driver_moves_no_plugin() -> None:
    values = {"dra": {"nodeLabel": "a=b"}}
    assert rendered(values) == rendered({})


@pytest.mark.parametrize(
    ("values", "version", "words"),
    [
        ({"dra": {"enabled": True}}, "1.36.0", "offer each GPU twice on the same nodes"),
        (DRA, "1.31.9", "needs Kubernetes 1.32 or newer"),
        (
            DRA | {"dra": {"enabled": True, "extendedResourceNames": {"gpu.nvidia.com": "a.b/c"}}},
            "1.33.0",
            "needs Kubernetes 1.36",
        ),
        (
            DRA | {"dra": {"enabled": True, "serviceAccount": {"create": False}}},
            "1.36.0",
            "needs dra.serviceAccount.name",
        ),
    ],
)
def test_values_that_contradict_are_refused(
    values: dict[str, Any], version: str, words: str
) -> None:
    assert words in refused(values, "--kube-version", version)


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"nodeLabel": "gpus"}, "nodeLabel"),
        ({"nodeLabel": "a/b/c=d"}, "nodeLabel"),
        ({"deviceClasses": {"migProfiles": ["10gb"]}}, "migProfiles"),
        ({"extendedResourceNames": {"gpu.intel.com": "a.b/c"}}, "gpu.intel.com"),
        ({"extendedResourceNames": {"gpu.nvidia.com": "gpu"}}, "extendedResourceNames"),
        ({"updateStrategy": {"type": "Recreate"}}, "updateStrategy"),
        ({"serviceAccounts": {}}, "serviceAccounts"),
    ],
)
def test_schema_refuses_values_of_the_driver(values: dict[str, Any], key: str) -> None:
    assert key in refused({"dra": values})


def test_permissions_of_the_driver() -> None:
    role = one(rendered(SETS["dra"]), "ClusterRole", "-dra")
    found = {
        (verb, resource)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete"]
    assert found == {
        ("get", "nodes"),
        ("get", "resourceclaims"),
        *((verb, "resourceslices") for verb in verbs),
        ("update", "resourceclaims/status"),
        ("patch", "resourceclaims/status"),
        ("associated-node:update", "resourceclaims/driver"),
        ("associated-node:patch", "resourceclaims/driver"),
    }


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("dra", {"privileged": True, "readOnlyRootFilesystem": True}),
        ("dra-mps", {"privileged": True, "readOnlyRootFilesystem": True}),
        ("dra-on-handlers", []),
        ("dra-with-handler", ["SYS_ADMIN"]),
        ("dra-mig", ["MKNOD"]),
        ("dra-guard", ["KILL"]),
    ],
)
def test_privileges_of_the_driver(name: str, wanted: Any) -> None:
    """Only a container without a handler that adds its GPUs, or with MPS servers, is privileged."""
    if isinstance(wanted, list):
        wanted = {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]} | ({"add": wanted} if wanted else {}),
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    assert container(rendered(SETS[name]), "-dra")["securityContext"] == wanted


def test_handler_adds_the_drivers_own_gpus() -> None:
    with_handler, without = (rendered(SETS[name]) for name in ("dra-with-handler", "dra"))
    assert pod(with_handler, "-dra")["runtimeClassName"] == "nvidia"
    assert variables(with_handler, "-dra")["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert "runtimeClassName" not in pod(without, "-dra")
    assert "NVIDIA_VISIBLE_DEVICES" not in variables(without, "-dra")


def test_paths_of_sockets_are_those_of_the_node() -> None:
    """The kubelet opens the paths that the driver tells it."""
    for name in ("dra", "dra-own-names"):
        spec = pod(rendered(SETS[name]), "-dra")
        root = SETS[name].get("kubeletRootDir", "/var/lib/kubelet")
        mounts = {one["name"]: one["mountPath"] for one in spec["containers"][0]["volumeMounts"]}
        volumes = [one for one in spec["volumes"] if "hostPath" in one]
        paths = {one["name"]: one["hostPath"]["path"] for one in volumes}
        for volume in ("registry", "gpu-nvidia-com"):
            assert mounts[volume] == paths[volume]
            assert paths[volume].startswith(f"{root}/plugins")


def test_driver_reads_what_a_plugin_has_assigned() -> None:
    """The checkpoint is looked up in the kubelet's directory, the socket at its usual path."""
    for name in ("dra", "dra-own-names"):
        objects = rendered(SETS[name])
        root = SETS[name].get("kubeletRootDir", "/var/lib/kubelet")
        socket = DraLaunch().plugin.pod_resources_socket
        wanted = {"device-plugins": f"{root}/device-plugins"}
        wanted["pod-resources"] = os.path.dirname(socket)
        for volume, path in wanted.items():
            mount, source = mounted(objects, "-dra", volume)
            assert (mount["mountPath"], source) == (path, f"{root}/{volume}")
            assert mount["readOnly"] is True


def test_driver_keeps_the_health_of_devices() -> None:
    mount, source = mounted(rendered(SETS["dra"]), "-dra", "state")
    assert health_marks.path(health_marks.DRA) == f"{source}/health-dra/marks.json"
    assert mount == {"name": "state", "mountPath": source}


def test_plugin_reads_the_claims_of_the_drivers() -> None:
    for root in ("/var/lib/kubelet", "/var/lib/k0s/kubelet"):
        values = {"kubeletRootDir": root, "amd": {"nodes": "mixed"}}
        for name in ("gpu.nvidia.com", "gpu.amd.com"):
            volume = name.replace(".", "-")
            mount, source = mounted(rendered(values), "device-plugin", volume)
            assert mount["mountPath"] == f"{Launch().drivers_directory}/{name}"
            assert (source, mount["readOnly"]) == (f"{root}/plugins/{name}", True)


@pytest.mark.parametrize("name", ["gpuhook", "nri", "dra"])
def test_manifests_have_the_mounts_of_the_chart(name: str) -> None:
    text = (ROOT / f"packaging/kubernetes/{name}.yaml").read_text(encoding="utf-8")
    objects = [obj for obj in yaml.safe_load_all(text) if obj]
    if name == "dra":
        for volume in ("device-plugins", "pod-resources"):
            mount, source = mounted(objects, "-dra", volume)
            assert mount["mountPath"] == source
    else:
        mount, source = mounted(objects, "device-plugin", "gpu-nvidia-com")
        assert (mount["mountPath"], mount["readOnly"]) == (source, True)


def mounted(objects: list[dict[str, Any]], name: str, volume: str) -> tuple[dict[str, Any], str]:
    """Return the mount of a volume of a DaemonSet, and the directory of the node."""
    (mount,) = [m for m in container(objects, name)["volumeMounts"] if m["name"] == volume]
    (source,) = [v["hostPath"] for v in pod(objects, name)["volumes"] if v["name"] == volume]
    return mount, source["path"]


def test_update_starts_the_new_pod_first() -> None:
    """The two pods have different sockets: each knows its uid."""
    objects = rendered(SETS["dra"])
    strategy = one(objects, "DaemonSet", "-dra")["spec"]["updateStrategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    env = {one["name"]: one.get("valueFrom") for one in container(objects, "-dra")["env"]}
    assert env["POD_UID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert not any("hostPort" in port for port in container(objects, "-dra").get("ports", []))


def test_driver_and_plugin_have_one_configuration() -> None:
    for values in (TIME_SLICES, TIME_SLICES | DRA, TIME_SLICES | BESIDE):
        objects = rendered(values)
        made = one(objects, "ConfigMap")["metadata"]["name"]
        for name in [o["metadata"]["name"] for o in objects if o["kind"] == "DaemonSet"]:
            (volume,) = [v for v in pod(objects, name)["volumes"] if "configMap" in v]
            assert volume["configMap"]["name"] == made


def test_one_configuration_needs_no_label() -> None:
    """The driver reads the node's label only with a permission for it."""
    several = {"config": {"map": {"a": "version: v1", "b": "version: v1"}, "default": "a"}}
    for values, variable, verbs in (
        (TIME_SLICES, ("CONFIG_FILE", "/available-configs/default"), ["get"]),
        (several, ("CONFIG_FILE_SRCDIR", "/available-configs"), ["get", "watch"]),
        ({"config": {"name": "x"}}, ("CONFIG_FILE_SRCDIR", "/available-configs"), ["get", "watch"]),
    ):
        objects = rendered(values | DRA)
        assert variable in variables(objects, "-dra").items()
        rules = one(objects, "ClusterRole", "-dra")["rules"]
        assert [r["verbs"] for r in rules if r["resources"] == ["nodes"]] == [verbs]


def test_metrics_of_the_driver() -> None:
    values = {"metrics": {"enabled": True, "serviceMonitor": {"enabled": True}}}
    for objects, names in (
        (rendered(DRA | values), ["gpuhook-dra"]),
        (rendered(BESIDE | values), ["gpuhook-device-plugin", "gpuhook-dra"]),
    ):
        for kind in ("Service", "ServiceMonitor"):
            assert sorted(o["metadata"]["name"] for o in objects if o["kind"] == kind) == names
        assert variables(objects, "-dra")["GPUHOOK_METRICS_ADDRESS"] == ":9395"
        assert container(objects, "-dra")["ports"] == [{"name": "metrics", "containerPort": 9395}]
    assert "GPUHOOK_METRICS_ADDRESS" not in variables(rendered(DRA), "-dra")


def test_events_need_a_value() -> None:
    for values, wanted in (({}, False), ({"apiAccess": {"events": True}}, True)):
        rules = one(rendered(DRA | values), "ClusterRole", "-dra")["rules"]
        assert (["events"] in [rule["resources"] for rule in rules]) is wanted


@pytest.mark.parametrize("page", ["docs/dra.md", "docs/nri.md"])
def test_values_of_a_page_are_valid(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(# values.yaml\n.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        assert rendered(yaml.safe_load(block))
    names = re.findall(r"`((?:dra|nri|installer|runtimeClass)\.\w+)", text)
    defaults = yaml.safe_load((ROOT / "packaging/helm/gpuhook/values.yaml").read_text())
    chart = [name.split(".") for name in names if name not in NODE_SETTINGS]
    assert chart
    assert all(key in defaults[section] for section, key in chart), chart


def test_driver_knows_each_variable() -> None:
    for name in ("dra", "dra-with-handler", "dra-mps", "dra-mig", "dra-amd-only"):
        values = SETS[name] | {"metrics": {"enabled": True}, "nvidiaDriverRoot": "/run/driver"}
        names = variables(rendered(values), "-dra").keys()
        known = {variable for option in OPTIONS for variable in option.variables}
        assert names - known <= {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}
