# SPDX-License-Identifier: Apache-2.0
"""The admission policies of the DRA driver, evaluated with a CEL library.

Real API servers deny a request if an expression is false or fails. `denial` does the same.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from tests.charts.rendering import one, pod, rendered
from tests.charts.values import DRA

cel = pytest.importorskip("cel_expr_python.cel", reason="no wheel for this Python")
NODE = "authentication.kubernetes.io/node-name"
RELEASES = [
    ("gpuhook", "gpuhook", {}),
    ("g", "gpu", {}),
    ("a.b", "kube-system", {"nameOverride": "x"}),
    ("r", "gpu", {"fullnameOverride": "gpus", "namespaceOverride": "other"}),
    ("r", "gpu", {"dra": {"enabled": True, "serviceAccount": {"create": False, "name": "mine"}}}),
    ("r" * 53, "n" * 63, {}),
]


def policy(objects: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the specification of a policy, which a binding must enforce."""
    found = one(objects, "ValidatingAdmissionPolicy", name)
    binding = one(objects, "ValidatingAdmissionPolicyBinding", name)
    assert binding["spec"] == {
        "policyName": found["metadata"]["name"],
        "validationActions": ["Deny"],
    }
    return dict(found["spec"])


@cache
def compiled(expression: str) -> Any:
    names = ("request", "object", "oldObject")
    return cel.NewEnv(variables=dict.fromkeys(names, cel.Type.DYN)).compile(expression)


def is_true(expression: str, facts: dict[str, Any]) -> bool:
    """Return whether an expression is true: false and errors are not."""
    return compiled(expression).eval(data=facts).value() is True


def inlined(spec: dict[str, Any], expression: str) -> str:
    """Return an expression with those of the policy's variables in place of their names."""
    own = {one["name"]: one["expression"] for one in spec.get("variables", ())}
    while (found := re.search(r"variables\.(\w+)", expression)) is not None:
        expression = expression.replace(found[0], f"({own[found[1]]})")
    return expression


def denial(spec: dict[str, Any], facts: dict[str, Any]) -> str | None:
    """Return the message of a denied request, None if it is allowed, "" if it is not judged."""
    if not all(is_true(one["expression"], facts) for one in spec["matchConditions"]):
        return ""
    for rule in spec["validations"]:
        if not is_true(inlined(spec, rule["expression"]), facts):
            worded = inlined(spec, rule.get("messageExpression", "''"))
            return str(compiled(worded).eval(data=facts).value() or rule["message"])
    return None


def request(
    objects: list[dict[str, Any]], operation: str, slice_node: str | None, **more: Any
) -> dict[str, Any]:
    """Return what a policy sees of a change of a slice by the driver's pod on node n1."""
    account = pod(objects, "-dra")["serviceAccountName"]
    namespace = one(objects, "DaemonSet", "-dra")["metadata"]["namespace"]
    user: dict[str, Any] = {
        "username": f"system:serviceaccount:{namespace}:{account}",
        "extra": {NODE: ["n1"]},
    }
    user |= more.get("user", {})
    spec = {"driver": more.get("driver", "gpu.nvidia.com")}
    if slice_node is not None:
        spec["nodeName"] = slice_node
    changed = {"spec": spec}
    is_deletion = operation == "DELETE"
    return {
        "request": {"operation": operation, "userInfo": user},
        "object": None if is_deletion else changed,
        "oldObject": None if operation == "CREATE" else changed,
    }


@pytest.mark.parametrize(("release", "namespace", "values"), RELEASES)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
def test_driver_changes_slices_of_its_node_only(
    release: str, namespace: str, values: dict[str, Any], operation: str
) -> None:
    """Also under other names: the policy is of the account that the pods have."""
    objects = rendered(DRA | values, release=release, namespace=namespace)
    spec = policy(objects, "-slices")
    assert denial(spec, request(objects, operation, "n1")) is None
    for slice_node, name in (("n2", "n2"), ("", "(none)"), (None, "(none)")):
        message = f"The DRA driver of node n1 cannot change a slice of node {name}."
        assert denial(spec, request(objects, operation, slice_node)) == message


@pytest.mark.parametrize(
    "user",
    [
        {"extra": {NODE: ["n2"]}},
        {"extra": {}},
        {"extra": None},
        {"extra": {"authentication.kubernetes.io/pod-name": ["n1"]}},
    ],
)
def test_token_of_no_node_changes_no_slice(user: dict[str, Any]) -> None:
    objects = rendered(DRA)
    facts = request(objects, "CREATE", "n1", user=user)
    if user["extra"] is None:
        del facts["request"]["userInfo"]["extra"]
    assert denial(policy(objects, "-slices"), facts)


def test_other_drivers_slices_and_other_accounts() -> None:
    objects = rendered(DRA)
    spec = policy(objects, "-slices")
    assert denial(spec, request(objects, "DELETE", "n1", driver="nic.example.com"))
    assert denial(spec, request(objects, "UPDATE", "n1", driver="gpu.amd.com"))
    both = rendered(DRA | {"amd": {"nodes": "mixed"}})
    facts = request(both, "UPDATE", "n1", driver="gpu.amd.com")
    assert denial(policy(both, "-slices"), facts) is None
    for name in ("system:node:n1", "system:serviceaccount:gpu:gpuhook-dra2"):
        facts = request(objects, "CREATE", "n2", user={"username": name})
        assert denial(spec, facts) == ""


def test_rules_of_the_policies() -> None:
    objects = rendered(DRA)
    for name, operations, resource in (
        ("-slices", ["CREATE", "UPDATE", "DELETE"], "resourceslices"),
        ("-claims", ["UPDATE"], "resourceclaims/status"),
    ):
        spec = policy(objects, name)
        assert spec["failurePolicy"] == "Fail"
        (rule,) = spec["matchConstraints"]["resourceRules"]
        assert rule == {
            "apiGroups": ["resource.k8s.io"],
            "apiVersions": ["*"],
            "operations": operations,
            "resources": [resource],
        }


RESULT = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0"}
ALLOCATED = {"allocation": {"devices": {"results": [RESULT]}}, "reservedFor": [{"uid": "u"}]}


@pytest.mark.parametrize(
    ("old", "new", "is_allowed"),
    [
        (ALLOCATED, ALLOCATED | {"devices": [RESULT]}, True),
        (ALLOCATED | {"devices": [RESULT]}, ALLOCATED, True),
        (ALLOCATED, ALLOCATED | {"reservedFor": []}, False),
        (ALLOCATED, {"reservedFor": [{"uid": "u"}]}, False),
        ({}, ALLOCATED, False),
        (ALLOCATED, {}, False),
        (
            ALLOCATED,
            ALLOCATED | {"allocation": {"devices": {"results": [RESULT | {"device": "gpu-1"}]}}},
            False,
        ),
    ],
)
def test_driver_changes_only_devices_of_a_claim(
    old: dict[str, Any], new: dict[str, Any], is_allowed: bool
) -> None:
    objects = rendered(DRA)
    facts = request(objects, "UPDATE", "n1") | {
        "object": {"status": new},
        "oldObject": {"status": old},
    }
    assert (denial(policy(objects, "-claims"), facts) is None) is is_allowed


def test_policies_can_be_off() -> None:
    objects = rendered(DRA | {"dra": {"enabled": True, "admissionPolicy": False}})
    assert not [o for o in objects if o["kind"].startswith("ValidatingAdmissionPolicy")]
