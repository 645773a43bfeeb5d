# SPDX-License-Identifier: Apache-2.0
"""Scheduling of pods: nodeSelector, node affinity, tolerations and RuntimeClasses on a node."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

import jsonschema
import pytest
import yaml

from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.explain.pods.pod_requests import document
from gpuhook.explain.pods.scheduling.placement import Placement
from gpuhook.explain.pods.scheduling.pod_placements import pod_placements
from gpuhook.node import daemons
from tests.unit.explain.test_pod_answers import SCHEMA
from tests.unit.offering import H100, T4, part_of
from tests.unit.pod_texts import HERE, read

PRODUCT = "nvidia.com/gpu.product"
UNMATCHED = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector: "
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TAINTS = [
    {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
    {"key": "soft", "effect": "PreferNoSchedule"},
]
NODE = {
    "kind": "Node",
    "metadata": {"name": "gpu-1", "labels": {"zone": "a", "cores": "64"}},
    "spec": {"taints": TAINTS},
}


def pod(kind: str = "Pod", **spec: object) -> dict[str, object]:
    whole = {"containers": [{"name": "c"}, {"name": "d"}], **spec}
    named = {"kind": kind, "metadata": {"name": "p"}}
    return {**named, "spec": whole if kind == "Pod" else {"template": {"spec": whole}}}


def placements(*objects: object, host_root: str | None = None) -> list[Placement]:
    """Return the placements of the containers on a T4 node; their documents fit the schema."""
    asked = read(yaml.safe_dump_all(objects))
    found = pod_placements(asked, [part_of(T4)], Configuration(), host_root)
    for one, placed in zip(asked, found, strict=True):
        jsonschema.validate(json.loads(json.dumps(document(one, None, placed))), SCHEMA)
    return found


def placed(*objects: object, host_root: str | None = None) -> Placement:
    """Return the placement of the first container."""
    return placements(*objects, host_root=host_root)[0]


def affinity(*terms: Sequence[Mapping[str, object]], field: str = "matchExpressions") -> object:
    found = [{field: [*term]} for term in terms]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": found}}}


def test_selector_of_another_model_is_an_objection() -> None:
    found, other = placements(pod(nodeSelector={PRODUCT: "other"}))
    (objection,) = found.objections
    assert (objection.id, objection.by, objection.result) == (
        "node-selector", "scheduler", "pending",
    )  # fmt: skip
    assert objection.said == f"{UNMATCHED}nodeSelector {PRODUCT}=other"
    assert objection.instead == f"{PRODUCT}: Tesla-T4, which this node has"
    assert objection.where == f"{HERE}:9"
    assert found.verdict == "differs"
    assert (other.objections, other.requirements, other.verdict) == ((), (), "differs")


def test_labels_that_the_node_has_match() -> None:
    labels = {PRODUCT: "Tesla-T4", "kubernetes.io/os": "linux", "nvidia.com/gpu.count": "1"}
    found = placed(pod(nodeSelector=labels))
    assert (found.verdict, found.objections) == ("matches", ())
    assert [one.verdict for one in found.requirements] == ["matches"] * 3


@pytest.mark.parametrize(
    "label",
    [
        "disktype",
        "kubernetes.io/hostname",  # of an inventory
        "kubernetes.io/arch",
        "nvidia.com/gpu.present",  # of the GPU operator
        "nvidia.com/gpu.machine",
        "nvidia.com/gpu.clique",
        "nvidia.com/gpu.memory-limit-by",
        "nvidia.com/vgpu.present",
    ],
)
@pytest.mark.parametrize("operator", ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
def test_unknown_labels_are_not_judged(label: str, operator: str) -> None:
    values = ["1"] if operator in ("In", "NotIn", "Gt", "Lt") else []
    term = {"key": label, "operator": operator, "values": values}
    found = placed(pod(affinity=affinity([term])))
    assert (found.verdict, found.objections) == ("not-judged", ())
    (one,) = found.requirements
    assert (one.verdict, one.node) == ("not-judged", None)


def test_label_that_gpuhook_does_not_write_for_this_node_is_absent() -> None:
    found = placed(pod(nodeSelector={"nvidia.com/mig-1g.5gb.count": "7"}))
    (objection,) = found.objections
    assert objection.instead.startswith("no nvidia.com/mig-1g.5gb.count in the nodeSelector")
    (one,) = found.requirements
    assert (one.verdict, one.reason) == ("differs", "the node has no such label")


OPERATORS = [
    ("zone", "In", ["b", "a"], True),
    ("zone", "In", ["b"], False),
    ("none", "In", ["a"], False),
    ("zone", "NotIn", ["b"], True),
    ("zone", "NotIn", ["a"], False),
    ("none", "NotIn", ["a"], True),
    ("zone", "Exists", [], True),
    ("none", "Exists", [], False),
    ("zone", "DoesNotExist", [], False),
    ("none", "DoesNotExist", [], True),
    ("cores", "Gt", ["63"], True),
    ("cores", "Gt", ["64"], False),
    ("cores", "Gt", ["-1"], True),
    ("cores", "Lt", ["65"], True),
    ("cores", "Lt", ["64"], False),
    ("none", "Lt", ["64"], False),
    ("zone", "Gt", ["1"], False),  # no number
    ("cores", "Gt", ["6_0"], False),
    ("cores", "Lt", ["9" * 30], False),  # no integer of 64 bits
]


@pytest.mark.parametrize(("key", "operator", "values", "holds"), OPERATORS)
def test_operators(key: str, operator: str, values: list[str], holds: bool) -> None:
    term = {"key": key, "operator": operator, "values": values}
    untainted = {**NODE, "spec": {}}
    found = placed(untainted, pod(affinity=affinity([term])))
    assert found.verdict == ("matches" if holds else "differs")
    assert [one.id for one in found.objections] == ([] if holds else ["node-affinity"])
    assert found.node == "Node gpu-1"


A, B = ({"key": "zone", "operator": "In", "values": [one]} for one in "ab")
UNKNOWN = {"key": "disktype", "operator": "Exists"}
T4_LABEL = {"key": PRODUCT, "operator": "In", "values": ["Tesla-T4"]}
OTHER = {"key": PRODUCT, "operator": "In", "values": ["other"]}


@pytest.mark.parametrize(
    ("terms", "verdict"),
    [
        (([OTHER], [T4_LABEL]), "matches"),  # one of the terms
        (([OTHER], [OTHER]), "differs"),
        (([T4_LABEL, OTHER],), "differs"),  # each expression of a term
        (([OTHER], [UNKNOWN]), "not-judged"),
        (([OTHER, UNKNOWN],), "differs"),
        (([T4_LABEL], [UNKNOWN]), "matches"),
        (([T4_LABEL, UNKNOWN],), "not-judged"),
        (([],), "differs"),  # an empty term is met by no node
        (([], [T4_LABEL]), "matches"),
    ],
)
def test_terms(terms: tuple[list[Mapping[str, object]], ...], verdict: str) -> None:
    found = placed(pod(affinity=affinity(*terms)))
    assert found.verdict == verdict
    assert bool(found.objections) == (verdict == "differs")


def test_affinity_and_selector_are_both_required() -> None:
    found = placed(pod(affinity=affinity([OTHER]), nodeSelector={PRODUCT: "other"}))
    assert [one.id for one in found.objections] == ["node-selector", "node-affinity"]
    assert f"{PRODUCT}=other: the node has Tesla-T4" in found.objections[1].instead


def test_preference_is_no_objection() -> None:
    preferred = [{"weight": 1, "preference": {"matchExpressions": [OTHER]}}]
    found = placed(pod(affinity={"nodeAffinity": {PREFERRED: preferred}}))
    (one,) = found.requirements
    assert (one.verdict, one.required) == ("differs", False)
    assert (found.verdict, found.objections) == ("matches", ())


@pytest.mark.parametrize(
    "requirement",
    [
        {"operator": "Is"},
        {"operator": "In"},
        {"operator": "Exists", "values": ["1"]},
        {"operator": "Gt", "values": ["1", "2"]},
        {"operator": "Gt"},
    ],
)
def test_requirements_that_the_api_server_refuses_are_not_judged(
    requirement: dict[str, object],
) -> None:
    found = placed(NODE, pod(affinity=affinity([{"key": "zone", **requirement}])))
    assert found.requirements[0].verdict == "not-judged"


@pytest.mark.parametrize(
    ("requirement", "ids"),
    [
        ({"key": "metadata.name", "operator": "In", "values": ["gpu-1"]}, []),
        ({"key": "metadata.name", "operator": "In", "values": ["gpu-2"]}, ["node-affinity"]),
        ({"key": "metadata.name", "operator": "NotIn", "values": ["gpu-1"]}, ["node-affinity"]),
        ({"key": "metadata.uid", "operator": "In", "values": ["x"]}, []),
        ({"key": "metadata.name", "operator": "Exists"}, []),
        ({"key": "metadata.name", "operator": "In", "values": []}, []),
    ],
)
def test_fields_of_the_node(requirement: dict[str, object], ids: list[str]) -> None:
    untainted = {**NODE, "spec": {}}
    by_field = affinity([requirement], field="matchFields")
    found = placed(untainted, pod(affinity=by_field))
    assert [one.id for one in found.objections] == ids


TOLERATED = {"key": "nvidia.com/gpu", "operator": "Exists"}


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        (TOLERATED, True),
        ({"operator": "Exists"}, True),
        ({**TOLERATED, "effect": "NoSchedule"}, True),
        ({**TOLERATED, "effect": "NoExecute"}, False),
        ({"key": "nvidia.com/gpu", "value": "present"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Equal", "value": "absent"}, False),
        ({"key": "nvidia.com/other", "operator": "Exists"}, False),
    ],
)
def test_taints(toleration: dict[str, str], is_tolerated: bool) -> None:
    found = placed(NODE, pod(tolerations=[toleration]))
    assert [one.id for one in found.objections] == ([] if is_tolerated else ["taint"])
    taints = [one for one in found.requirements if one.origin == "taint"]
    assert [one.required for one in taints] == [True, False]  # the second is a preference
    if not is_tolerated:
        (objection,) = found.objections
        said = "0/1 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: present}."
        assert objection.said == said
        again = {"tolerations": yaml.safe_load(objection.instead)["tolerations"]}
        assert placed(NODE, pod(**again)).objections == ()


def test_daemon_set_tolerates_the_taints_of_nodes() -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    node = {**NODE, "spec": {"taints": [taint]}}
    assert placed(node, pod("DaemonSet")).objections == ()
    assert [one.id for one in placed(node, pod("Deployment")).objections] == ["taint"]


def test_unknown_taints_are_not_judged() -> None:
    found = placed(pod(tolerations=[TOLERATED]))
    (one,) = found.requirements
    assert (one.origin, one.verdict) == ("toleration", "not-judged")
    assert (found.verdict, found.objections) == ("matches", ())


def test_node_name_bypasses_the_scheduler() -> None:
    here = placed(NODE, pod(nodeName="gpu-1", nodeSelector={"zone": "b"}))
    assert [(one.id, one.by) for one in here.objections] == [("node-selector", "kubelet")]
    there = placed(NODE, pod(nodeName="gpu-2"))
    assert [one.id for one in there.objections] == ["node-name"]


def test_runtime_class_adds_its_scheduling() -> None:
    scheduling = {"nodeSelector": {"zone": "b", "cores": "64"}, "tolerations": [TOLERATED]}
    fast = {
        "kind": "RuntimeClass",
        "metadata": {"name": "fast"},
        "handler": "nvidia-fast",
        "scheduling": scheduling,
    }
    found = placed(NODE, fast, pod(runtimeClassName="fast"))
    assert [one.said for one in found.objections] == [f"{UNMATCHED}RuntimeClass zone=b"]
    assert placed(NODE, fast, pod(runtimeClassName="other")).requirements[0].origin == "taint"


def test_one_of_several_nodes_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    other = {**NODE, "metadata": {"name": "gpu-2", "labels": {"zone": "b"}}}
    monkeypatch.setenv("NODE_NAME", "gpu-2")
    asked = pod(nodeSelector={"zone": "b"}, tolerations=[TOLERATED])
    assert placed(NODE, other, asked, host_root="/").verdict == "matches"
    assert placed(NODE, other, asked).verdict == "not-judged"


def test_labels_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    name = os.uname().nodename.lower()
    known = {"kubernetes.io/hostname": name, "nvidia.com/vgpu.present": "false"}
    assert placed(pod(nodeSelector=known), host_root="/").verdict == "matches"
    wrong = {"kubernetes.io/hostname": "other", "kubernetes.io/arch": "s390x"}
    found = placed(pod(nodeSelector=wrong), host_root="/")
    assert len(found.objections) == 2
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")  # a pod has its own host name
    assert placed(pod(nodeSelector={"kubernetes.io/hostname": "a"}), host_root="/").objections == ()


def test_name_in_the_command_line_of_the_kubelet(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("NODE_NAME", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(variable, raising=False)
    for argv in (["kubelet", "--hostname-override=GPU-7"], ["kubelet", "--node-name", "gpu-7"]):
        processes = [{"name": "containerd", "argv": []}, {"name": "kubelet", "argv": argv}]
        monkeypatch.setattr(daemons, "processes", lambda _, found=processes: found)
        assert placed(pod(nodeName="gpu-7"), host_root="/").verdict == "matches"
        assert placed(pod(nodeName=os.uname().nodename), host_root="/").verdict == "differs"
    titled = [{"name": "k3s", "argv": ["/usr/local/bin/k3s agent"]}]  # k3s --node-name gpu-7 agent
    monkeypatch.setattr(daemons, "processes", lambda _: titled)
    assert placed(pod(nodeName="gpu-7"), host_root="/").verdict == "not-judged"


def test_pods_with_one_generated_name_are_judged_apart() -> None:
    one, other = (
        {**pod(nodeSelector={PRODUCT: product}), "metadata": {"generateName": "p-"}}
        for product in ("Tesla-T4", "other")
    )
    found = placements(one, other)
    assert [len(placed.objections) for placed in found] == [0, 0, 1, 0]
    assert [placed.verdict for placed in found] == ["matches", "matches", "differs", "differs"]


def test_printed_pod_has_no_line_on_default_tolerations() -> None:
    defaults = [{"key": f"node.kubernetes.io/{one}"} for one in ("not-ready", "unreachable")]
    assert placed(pod(tolerations=defaults)).requirements == ()


def test_shared_objects_are_bounded() -> None:
    """Any number of pods may name a RuntimeClass, and all are compared with a Node."""
    taints = [{"key": f"t{number}", "effect": "NoSchedule"} for number in range(1000)]
    labels = {f"l{number}": "x" * 1000 for number in range(1000)}
    node = {"kind": "Node", "metadata": {"name": "n", "labels": labels}, "spec": {"taints": taints}}
    fast = {"kind": "RuntimeClass", "metadata": {"name": "fast"}}
    scheduling = {"nodeSelector": labels, "tolerations": taints}
    found = placed(node, {**fast, "scheduling": scheduling}, pod(runtimeClassName="fast"))
    assert len(found.requirements) == 200
    assert max(len(one.requirement) for one in found.requirements) < 500


def test_labels_follow_the_configuration() -> None:
    """A pod of a workload is compared as a pod is; the count is of this node's GPUs."""
    asked = read(yaml.safe_dump(pod("Job", nodeSelector={"nvidia.com/gpu.count": "8"})))
    (found, _) = pod_placements(asked, [part_of(H100)], Configuration(), None)
    assert found.verdict == "matches"


def test_node_without_facts_has_no_known_gpu_labels() -> None:
    asked = read(yaml.safe_dump(pod(nodeSelector={PRODUCT: "other"})))
    (found, _) = pod_placements(asked, [], Configuration(), None)
    assert (found.verdict, found.objections) == ("not-judged", ())
