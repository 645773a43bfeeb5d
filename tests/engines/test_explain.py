# SPDX-License-Identifier: Apache-2.0
"""`gpuhook explain` of pods on a node with containerd, before and after it is configured."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engines.engine_node import EngineNode

POD = "/srv/pod.yaml"
CLASS = {"kind": "RuntimeClass", "metadata": {"name": "gpu"}, "handler": "nvidia"}


def explained(node: EngineNode, **spec: Any) -> tuple[int, str, list[str]]:
    """Return the exit status, the result and the ids of the objections for a pod of the node."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    whole = {"runtimeClassName": "gpu", "containers": [{"name": "c", **limits}], **spec}
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": whole}
    text = json.dumps({"kind": "List", "items": [CLASS, pod]})
    node.path(POD).write_text(text, encoding="utf-8")
    done = node.run("gpuhook", "explain", POD, "-o", "json")
    (container,) = json.loads(done.stdout)["containers"]
    return done.rc, container["result"], [one["id"] for one in container["pod"]["objections"]]


@pytest.fixture
def _configured(node: EngineNode) -> Any:
    node.check("gpuhook", "configure", "containerd", "--enable-cri")
    yield
    node.check("gpuhook", "configure", "undo", "containerd")


def test_handler_that_the_engine_does_not_have(node: EngineNode) -> None:
    assert explained(node) == (1, "not-created", ["no-handler"])


@pytest.mark.usefixtures("_configured")
def test_pod_on_a_configured_node(node: EngineNode) -> None:
    """The labels are those that `gpuhook labels` prints on the node."""
    printed = json.loads(node.check("gpuhook", "labels", "-o", "json"))["labels"]
    product = {"nvidia.com/gpu.product": printed["nvidia.com/gpu.product"]}
    name = {"kubernetes.io/hostname": node.check("uname", "-n").strip().lower()}
    assert explained(node, nodeSelector=product | name) == (0, "gets", [])
    other = {"nvidia.com/gpu.product": "other"}
    assert explained(node, nodeSelector=other) == (1, "pending", ["node-selector"])
