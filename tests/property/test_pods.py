# SPDX-License-Identifier: Apache-2.0
"""Any manifest of a pod is read, or refused with a code."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.errors import GpuhookError
from gpuhook.explain.pods.container_spec import as_spec
from gpuhook.explain.pods.pod_answers import of_pods
from gpuhook.explain.pods.pod_manifests import read
from gpuhook.explain.pods.pod_requests import PodRequest
from gpuhook.explain.pods.pod_requests import document as pod_document
from gpuhook.explain.text import pod_text
from gpuhook.host.quantity import quantity
from tests.unit.explain.test_pod_answers import SCHEMA
from tests.unit.offering import H100, part_of

KEYS = [
    "kind",
    "metadata",
    "spec",
    "template",
    "jobTemplate",
    "containers",
    "initContainers",
    "ephemeralContainers",
    "name",
    "namespace",
    "image",
    "env",
    "envFrom",
    "value",
    "valueFrom",
    "fieldRef",
    "fieldPath",
    "configMapRef",
    "data",
    "resources",
    "limits",
    "requests",
    "claims",
    "nvidia.com/gpu",
    "gpu",
    "annotations",
    "volumes",
    "volumeMounts",
    "mountPath",
    "hostPath",
    "path",
    "securityContext",
    "privileged",
    "capabilities",
    "add",
    "runtimeClassName",
    "items",
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["Pod", "List", "Deployment", "CronJob", "ConfigMap", "NVIDIA_VISIBLE_DEVICES"]
    ),
    st.sampled_from(["$(A)", "$$(", "1", "500m", "-3", "1e3", "all", "metadata.annotations['a']"]),
)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=25,
)
AMOUNTS = st.sampled_from(["1", "2", 3, 0, "9", "0.5", "500m", "-1", "x", "1Ki"])
NAMES = st.sampled_from(["nvidia.com/gpu", "nvidia.com/gpu.shared", "gpu", "cpu", "amd.com/gpu"])
CONTAINERS = st.fixed_dictionaries(
    {"name": st.text(max_size=3)},
    optional={
        "env": ANYTHING,
        "securityContext": ANYTHING,
        "volumeMounts": ANYTHING,
        "restartPolicy": st.just("Always"),
        "resources": st.dictionaries(
            st.sampled_from(["limits", "requests"]), st.dictionaries(NAMES, AMOUNTS, max_size=3)
        ),
    },
)
PODS = st.fixed_dictionaries(
    {
        "kind": st.just("Pod"),
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(CONTAINERS, min_size=1, max_size=3)},
            optional={"initContainers": st.lists(CONTAINERS, max_size=2), "volumes": ANYTHING},
        ),
    },
    optional={"metadata": ANYTHING},
)


def _read(text: str) -> tuple[PodRequest, ...]:
    try:
        return read(text, "pod.yaml")
    except GpuhookError as error:
        if error.code not in ("GH1930", "GH1931"):
            raise
        return ()


@given(st.one_of(st.text(), ANYTHING.map(yaml.safe_dump), PODS.map(yaml.safe_dump)))
def test_any_read_manifest_is_explained(text: str) -> None:
    found = _read(text)
    for request, allocated in zip(
        found, of_pods(found, [part_of(H100)], Configuration()), strict=True
    ):
        document = json.loads(json.dumps(pod_document(request, allocated)))
        jsonschema.validate(document, SCHEMA)
        list(pod_text.lines(document))
        as_spec(request, allocated, H100.device_nodes)


@given(PODS)
def test_yaml_and_json_of_a_pod_give_the_same_requests(pod: dict[str, object]) -> None:
    try:
        text = json.dumps(pod, allow_nan=False)
    except ValueError:
        return  # JSON has no infinity
    ours = [
        (one.container, one.gpus, one.limits, one.requests, [o.id for o in one.objections])
        for one in _read(text)
    ]
    theirs = [
        (one.container, one.gpus, one.limits, one.requests, [o.id for o in one.objections])
        for one in _read(yaml.safe_dump(pod, sort_keys=False))
    ]
    assert ours == theirs


@given(PODS)
def test_only_units_of_init_containers_are_allocated_again(pod: dict[str, object]) -> None:
    found = _read(yaml.safe_dump(pod, sort_keys=False))
    allocated_units: set[str] = set()
    for request, allocated in zip(
        found, of_pods(found, [part_of(H100)], Configuration()), strict=True
    ):
        units = set(allocated.units)
        assert len(units) == sum(len(answer.units) for answer in allocated.answers)
        if request.kind != "init":
            assert not allocated_units & units
            allocated_units |= units


@given(st.text(max_size=12))
def test_quantity_of_any_text_is_a_number_or_none(text: str) -> None:
    number = quantity(text)
    assert number is None or quantity(f"{number.numerator}") == number.numerator
