# SPDX-License-Identifier: Apache-2.0
"""`gpuhook explain` of claims, classes and pods with claims, on simulated nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

import gpuhook
from gpuhook.cli import main
from tests.unit.explain.claims.pools import claim
from tests.unit.explain.claims.test_cel_selectors import with_library

pytestmark = with_library
SCHEMA = json.loads(
    Path(gpuhook.__file__).with_name("schemas").joinpath("explain.json").read_text("utf-8")
)
LARGE = "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0"
SELECTED = (
    "- {{name: gpu, exactly: {{deviceClassName: gpu.nvidia.com, selectors: "
    '[{{cel: {{expression: "{}"}}}}]}}}}'
)
POD = """---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  resourceClaims: [{name: g, resourceClaimName: c}]
  containers:
  - {name: user, resources: {claims: [{name: g, request: gpu}]}}
  - {name: other}
"""
SHARED = """---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: shared}
spec:
  selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com'"}}]
  extendedResourceName: nvidia.com/gpu
"""
REPLICAS = (
    "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4, "
    "memory: fair}]}}\n"
)


def run(text: str, *words: str, node: str = "h100x8") -> Result:
    words = ("explain", "-", "--inventory", node, *words)
    return CliRunner().invoke(main, words, input=text, prog_name="gpuhook")


def document(text: str, *words: str, node: str = "h100x8") -> dict[str, Any]:
    told = run(text, *words, "-o", "json", node=node)
    assert told.exit_code in (0, 1), told.stderr
    found: dict[str, Any] = json.loads(told.stdout)
    jsonschema.validate(found, SCHEMA)
    return found


def test_claim_alone() -> None:
    text = claim(SELECTED.format(LARGE))
    (found,) = document(text)["claims"]
    assert (found["result"], found["pod"]) == ("allocated", "")
    (request,) = found["requests"]
    assert [one["device"] for one in request["allocated"]] == ["gpu-0"]
    assert {one["verdict"] for one in request["devices"]} == {"matches"}
    (found,) = document(text, node="t4")["claims"]
    assert found["result"] == "pending"
    (device,) = found["requests"][0]["devices"]
    assert device["by"] == "selector 0 of request gpu"
    assert device["where"] == "standard input:7"
    assert device["reason"] == f"{LARGE} is false"
    assert run(text).exit_code == 0
    assert run(text, node="t4").exit_code == 1


def test_text_has_the_devices_and_the_reasons() -> None:
    told = run(claim(SELECTED.format("device.attributes['gpu.nvidia.com'].minor == 3")))
    lines = [line.strip() for line in told.stdout.splitlines()]
    assert "Answer: this node can satisfy it" in lines
    assert "gets gpu-3 of gpu.nvidia.com" in lines
    assert any(line.startswith("excluded: gpu-0, gpu-1, ") for line in lines)
    assert any("selector 0 of request gpu (standard input:7)" in line for line in lines)


def test_pod_gets_the_devices_of_its_claim() -> None:
    found = document(claim(SELECTED.format(LARGE)) + POD)
    user, other = found["containers"]
    assert (user["result"], user["route"]["name"]) == ("gets", "dra")
    assert [one["index"] for one in user["gpus"]] == ["0"]
    assert user["isolation"][0]["sharing"] == "none"
    assert (other["result"], other["gpus"]) == ("nothing", [])
    assert [one["pod"] for one in found["claims"]] == ["Pod/p"]


def test_pod_whose_claim_does_not_fit_stays_pending() -> None:
    found = document(claim(SELECTED.format(LARGE)) + POD, node="t4")
    assert {one["result"] for one in found["containers"]} == {"pending"}
    (objection,) = found["containers"][0]["pod"]["objections"]
    assert objection["said"] == "0/1 nodes are available: 1 cannot allocate all claims."
    broken = document(claim(SELECTED.format("device.attributes['x.y'].z == 1")) + POD)
    assert broken["claims"][0]["result"] == "error"
    (objection,) = broken["containers"][0]["pod"]["objections"]
    assert "no such key" in objection["said"]


def test_what_is_unknown_is_not_judged() -> None:
    found = document(POD)
    assert found["claims"][0]["result"] == "not-judged"
    assert found["claims"][0]["reason"] == ("the manifest does not have ResourceClaim c in default")
    assert found["containers"][0]["result"] == "unknown"
    odd = document(claim(SELECTED.format("[1].sum() == 1")) + POD)
    assert odd["claims"][0]["result"] == "not-judged"
    assert odd["containers"][0]["result"] == "unknown"
    assert run(claim(SELECTED.format("[1].sum() == 1"))).exit_code == 0


def test_extended_resources_of_a_class_come_from_claims(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.yaml"
    plugin.write_text(REPLICAS)
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: e}\nspec:\n  containers:\n"
        "  - {name: a, resources: {limits: {nvidia.com/gpu: 1}}}\n"
        "  - {name: b, resources: {limits: {nvidia.com/gpu: 1}}}\n"
    )
    options = ("--plugin-config", str(plugin))
    found = document(pod + SHARED, *options, node="t4")
    (claims,) = found["claims"]
    assert [one["request"] for one in claims["requests"]] == [
        "container-0-request-0",
        "container-1-request-0",
    ]
    for one in found["containers"]:
        assert one["route"]["name"] == "dra"
        assert one["pod"]["allocation"]["resources"] == []
        assert one["memory"][0]["limit"] == 3776 << 20
    # Without the class, the device plugin has them.
    without = document(pod, *options, node="t4")
    assert "claims" not in without
    assert without["containers"][0]["route"]["name"] != "dra"
    classes = tmp_path / "classes.yaml"
    classes.write_text(SHARED)
    again = document(pod, *options, "--class-file", str(classes), node="t4")
    assert again["containers"][0]["route"]["name"] == "dra"
    implicit = pod.replace("nvidia.com/gpu", "deviceclass.resource.kubernetes.io/gpu.nvidia.com")
    found = document(implicit)
    assert [one["route"]["name"] for one in found["containers"]] == ["dra", "dra"]
    assert [one["gpus"][0]["index"] for one in found["containers"]] == ["0", "1"]


def test_lint_of_the_pod_is_part_of_the_answer() -> None:
    pod = POD.replace("request: gpu", "request: other")
    (user, _) = document(claim(SELECTED.format("true")) + pod)["containers"]
    assert user["result"] == "not-created"
    assert user["pod"]["objections"][0]["id"] == "claim-request"
    named = POD.replace("spec:\n", "spec:\n  nodeName: n1\n")
    (user, _) = document(claim(SELECTED.format("true")) + named)["containers"]
    assert user["result"] == "pending"
    bad = document(claim("- {name: gpu, exactly: {deviceClassName: gpu.nvidia.com, count: 0}}"))
    assert bad["claims"][0]["result"] == "refused"
    assert "greater than zero" in bad["claims"][0]["reason"]


@pytest.mark.parametrize(
    ("node", "device_class", "devices"),
    [
        ("a100-mig", "mig.nvidia.com", True),
        ("a100-mig", "gpu.nvidia.com", None),
        ("mi300x8", "gpu.amd.com", True),
        ("mi300x-cpx", "gpu.amd.com", True),
        ("mi300x8", "gpu.nvidia.com", False),
        ("lost-gpu", "gpu.nvidia.com", None),
        ("mixed", "gpu.nvidia.com", None),
    ],
)
def test_default_classes_on_the_profiles(
    node: str, device_class: str, devices: bool | None
) -> None:
    """The classes of the chart select the devices of their vendor, and fail on none."""
    (found,) = document(
        claim(f"- {{name: gpu, exactly: {{deviceClassName: {device_class}}}}}"), node=node
    )["claims"]
    assert found["result"] in ("allocated", "pending")
    if devices is not None:
        assert found["result"] == ("allocated" if devices else "pending")


def test_class_alone_and_lists_of_kubectl() -> None:
    found = document(SHARED)
    assert found["claims"][0]["claims"][0]["claim"] == "a claim for shared"
    assert len(found["claims"][0]["requests"][0]["devices"]) == 8
    listed = json.dumps(
        {"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
             "metadata": {"name": f"c{n}"},
             "spec": {"devices": {"requests": [
                 {"name": "a", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}}
            for n in range(3)
        ]}
    )  # fmt: skip
    assert [one["result"] for one in document(listed)["claims"]] == ["allocated"] * 3


def test_node_without_known_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here, on a machine without a driver, the answer says that there is no device."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path))
    told = CliRunner().invoke(
        main, ["explain", "-", "-o", "json"], input=claim(SELECTED.format("true"))
    )
    found = json.loads(told.stdout)
    assert (found["claims"][0]["result"], told.exit_code) == ("pending", 1)
    assert found["claims"][0]["reason"] == "request gpu: the node has no device"
