# SPDX-License-Identifier: Apache-2.0
"""Reading manifests of each kind."""

from __future__ import annotations

import json

import pytest
import yaml

from gpuhook.errors import GpuhookError
from tests.unit.pod_texts import GPU, HERE, container, read

CONTAINERS = [{"name": "c", "image": "i", "resources": {"limits": {GPU: 1}}}]
TEMPLATE = {"metadata": {"annotations": {"a": "b"}}, "spec": {"containers": CONTAINERS}}


def _object(kind: str, spec: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "n"}, "spec": spec}


WORKLOADS = [
    *(
        _object(kind, {"template": TEMPLATE})
        for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job")
    ),
    _object("CronJob", {"jobTemplate": {"spec": {"template": TEMPLATE}}}),
    _object("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"template": TEMPLATE}}}),
    _object("RayCluster", {"workerGroupSpecs": [{"groupName": "g", "template": TEMPLATE}]}),
]


@pytest.mark.parametrize("document", WORKLOADS, ids=lambda one: str(one["kind"]))
@pytest.mark.parametrize("write", [yaml.safe_dump, json.dumps], ids=["yaml", "json"])
def test_containers_of_a_workload_are_those_of_its_template(document: object, write) -> None:  # type: ignore[no-untyped-def]
    (found,) = read(write(document))
    assert isinstance(document, dict)
    assert found.workload == f"{document['kind']}/n"
    assert (found.container, found.image, found.gpus) == ("c", "i", {GPU: 1})
    assert found.annotations == {"a": "b"}
    assert found.objections == ()


def test_lists_and_several_documents_are_read_in_order() -> None:
    pods = [_object("Pod", {"containers": [{"name": name}]}) for name in "abc"]
    listed = {"apiVersion": "v1", "kind": "List", "items": pods[:2]}
    text = yaml.safe_dump_all([listed, pods[2], {"kind": "Service"}, None])
    assert [one.container for one in read(text)] == ["a", "b", "c"]


def test_json_with_tabs_is_read() -> None:
    assert read(json.dumps(_object("Pod", {"containers": CONTAINERS}), indent="\t"))[0].gpus


def test_container_has_the_line_of_its_beginning() -> None:
    assert container("image: x").where == f"{HERE}:6"


def test_kinds_of_containers_are_distinguished() -> None:
    found = read("""
        kind: Pod
        spec:
          initContainers:
          - {name: a}
          - {name: b, restartPolicy: Always}
          containers:
          - {name: c}
          ephemeralContainers:
          - {name: d}
    """)
    kinds = {one.container: one.kind for one in found}
    assert kinds == {"a": "init", "b": "sidecar", "c": "container", "d": "ephemeral"}


def test_merged_and_aliased_values_are_read() -> None:
    found = read("""
        kind: Pod
        metadata: {name: p}
        spec:
          containers:
          - &first {name: a, image: x, resources: {limits: {nvidia.com/gpu: 2}}}
          - {<<: *first, name: b}
    """)
    assert [(one.container, one.image, one.gpus) for one in found] == [
        ("a", "x", {GPU: 2}),
        ("b", "x", {GPU: 2}),
    ]


def test_fields_of_the_pod_apply_to_each_container() -> None:
    (found,) = read("""
        kind: Pod
        metadata: {name: p, namespace: ml}
        spec:
          runtimeClassName: nvidia
          hostPID: true
          volumes:
          - {name: data, hostPath: {path: /srv}}
          - {name: tmp, emptyDir: {}}
          containers:
          - name: c
            securityContext: {privileged: true, capabilities: {add: [SYS_PTRACE]}}
            volumeMounts:
            - {name: data, mountPath: /data, subPath: x, readOnly: true}
            - {name: tmp, mountPath: /tmp}
            - {name: unknown, mountPath: /nowhere}
    """)
    assert (found.pod, found.namespace, found.runtime_class) == ("p", "ml", "nvidia")
    assert found.privileged
    assert found.host_pid
    assert found.capabilities == ("SYS_PTRACE",)
    mounts = [(one.path, one.source, one.is_host, one.read_only) for one in found.mounts]
    assert mounts == [("/data", "/srv/x", True, True), ("/tmp", "emptyDir", False, False)]


def test_variables_are_expanded_as_the_kubelet_does() -> None:
    env = """env: [
      {name: A, value: x}, {name: B, value: "$(A)-$$(A)-$(LATER)-$"}, {name: LATER, value: y},
      {name: C, valueFrom: {fieldRef: {fieldPath: metadata.name}}},
      {name: D, valueFrom: {secretKeyRef: {name: s, key: k}}}, {name: E, value: "$(D)"}]"""
    found = container(env)
    assert found.env == {"A": "x", "B": "x-$(A)-$(LATER)-$", "LATER": "y", "C": "p"}
    assert found.unknown_env == {
        "D": "Secret s, key k",
        "E": "it refers to D, which is from Secret s, key k",
    }


def test_config_map_of_the_same_file_has_its_values() -> None:
    (found,) = read("""
        kind: ConfigMap
        metadata: {name: m}
        data: {gpus: all, LEVEL: "3"}
        ---
        kind: Pod
        metadata: {name: p}
        spec:
          containers:
          - name: c
            envFrom: [{configMapRef: {name: m}, prefix: X_}, {configMapRef: {name: other}}]
            env:
            - name: NVIDIA_VISIBLE_DEVICES
              valueFrom: {configMapKeyRef: {name: m, key: gpus}}
            - name: LOST
              valueFrom: {configMapKeyRef: {name: m, key: nothing}}
    """)
    assert found.env == {"X_gpus": "all", "X_LEVEL": "3", "NVIDIA_VISIBLE_DEVICES": "all"}
    assert found.unknown_env == {
        "*": "every key of ConfigMap other",
        "LOST": "ConfigMap m, key nothing",
    }


def test_multiplying_variables_are_bounded() -> None:
    names = ["V0", *(f"V{n}" for n in range(1, 60))]
    first = "{name: V0, value: xxxxxxxxxxxxxxxx}"
    rest = [f'{{name: V{n}, value: "$(V{n - 1})$(V{n - 1})"}}' for n in range(1, 60)]
    found = container(f"env: [{', '.join([first, *rest])}]")
    assert {*found.env, *found.unknown_env} == set(names)
    assert sum(len(value) for value in found.env.values()) < 1 << 20
    assert found.unknown_env["V59"].startswith("it refers to V58")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: ]", "did not find expected node content"),
        ("a: &a [*a]", "contains itself"),
        ("[" * 100 + "]" * 100, "nested too deeply"),
        ("x: 1\n" * 4_000_000, "larger than"),
    ],
)
def test_unreadable_manifest_is_a_fault_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(GpuhookError, match=reason) as raised:
        read(text)
    assert raised.value.code == "GH1930"
    assert f"{HERE}:1:" in raised.value.message


def test_multiplying_aliases_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(GpuhookError, match="expands to more than 500000 values") as raised:
        read("\n".join(lines))
    assert raised.value.code == "GH1930"


def test_aliases_that_multiply_in_several_documents_are_refused() -> None:
    """Each document is within the bounds, and all of them together are not."""
    one = f"a: &a [{', '.join('x' * 500)}]\nb: [{', '.join(['*a'] * 500)}]\n"
    with pytest.raises(GpuhookError, match="expands to more than 500000 values") as raised:
        read("---\n".join([one] * 3))
    assert raised.value.code == "GH1930"


def test_file_without_pods_lists_its_objects() -> None:
    with pytest.raises(GpuhookError, match="ConfigMap, Service") as raised:
        read("kind: ConfigMap\n---\nkind: Service\n")
    assert raised.value.code == "GH1931"


def test_pod_without_indentation_is_not_a_pod() -> None:
    with pytest.raises(GpuhookError, match="Pod") as raised:
        read("apiVersion: v1\nkind: Pod\nspec:\ncontainers:\n- name: c\nimage: x\n")
    assert raised.value.code == "GH1931"
    assert "indentation" in raised.value.hint


# Pods in widely used tutorials.
SEEDS = """
apiVersion: v1
kind: Pod
spec:
  containers:
  - name: gpu-container
    image: nvidia/cuda:11.0-base
    resources:
      limits:
        nvidia.com/gpu: 1 # whole numbers only
      requests:
        nvidia.com/gpu: 1
---
apiVersion: v1
kind: Pod
metadata:
  name: gpu-test-2
  namespace: default
  labels: {app: gpu-test}
spec:
  runtimeClassName: nvidia
  restartPolicy: OnFailure
  affinity:
    podAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - labelSelector:
          matchExpressions:
          - {key: app, operator: In, values: [gpu-test]}
        topologyKey: kubernetes.io/hostname
  containers:
  - name: cuda-vector-add
    image: "nvidia/samples:vectoradd-cuda10.2"
    resources:
      limits:
        nvidia.com/gpu: 1
---
apiVersion: v1
kind: Pod
metadata:
  name: cuda-vector-add
spec:
  restartPolicy: OnFailure
  containers:
  - name: cuda-vector-add
    image: "k8s.gcr.io/cuda-vector-add:v0.1"
    resources:
      limits:
        nvidia.com/gpu: 1
  nodeSelector:
    accelerator: nvidia-tesla-p100
"""


def test_usual_pods_have_no_objections() -> None:
    found = read(SEEDS)
    assert [(one.gpus, one.runtime_class, one.objections) for one in found] == [
        ({GPU: 1}, None, ()),
        ({GPU: 1}, "nvidia", ()),
        ({GPU: 1}, None, ()),
    ]
    notes = [" ".join(one.notes) for one in found]
    assert "no runtimeClassName" in notes[0]
    assert notes[1] == ""


def test_json_surrogate_pairs_are_read() -> None:
    (found,) = read(
        '{"kind": "Pod", "spec": {"containers": [{"name": "\\ud83d\\ude00\\\\ud83d"}]}}'
    )
    assert found.container == "\U0001f600\\ud83d"
