# SPDX-License-Identifier: Apache-2.0
"""Objections of Kubernetes to manifests: the component, its message, and a correct form."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gpuhook.host.quantity import quantity
from tests.unit.pod_texts import GPU, HERE, container, ids, read

RESOURCES = "spec.containers[0].resources"
# The resources, the objection's id, its message, and the correct form.
REFUSALS = [
    (
        "requests: {nvidia.com/gpu: 1}",
        "gpu-under-requests",
        f"{RESOURCES}.limits: Required value: Limit must be set for non overcommitable resources",
        "nvidia.com/gpu: 1 under limits; requests are optional",
    ),
    (
        "requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 2}",
        "unequal",
        f'{RESOURCES}.requests: Invalid value: "1": must be equal to nvidia.com/gpu limit of 2',
        "nvidia.com/gpu: 2 in both, or only under limits",
    ),
    (
        "nvidia.com/gpu: 2",
        "resources-field",
        f'strict decoding error: unknown field "{RESOURCES}.nvidia.com/gpu"',
        "limits: {nvidia.com/gpu: 2}, below resources",
    ),
    (
        "limits: {nvidia.com/gpu: 1500m}",
        "fraction",
        f'{RESOURCES}.limits[nvidia.com/gpu]: Invalid value: "1500m": must be an integer',
        "nvidia.com/gpu: 2; for a part of a GPU, request one unit of a shared resource",
    ),
    (
        "limits: {nvidia.com/gpu: 0.5}",
        "fraction",
        f'{RESOURCES}.limits[nvidia.com/gpu]: Invalid value: "0.5": must be an integer',
        "nvidia.com/gpu: 1;",
    ),
    (
        "limits: {nvidia.com/gpu: -1}",
        "negative",
        f'{RESOURCES}.limits[nvidia.com/gpu]: Invalid value: "-1": must be greater than or equal',
        "nvidia.com/gpu: 1, or nothing",
    ),
    (
        "limits: {nvidia.com/gpu: one}",
        "quantity",
        "quantities must match the regular expression",
        "nvidia.com/gpu: 1",
    ),
    (
        "limits: {gpu: 2}",
        "resource-unqualified",
        f'{RESOURCES}.limits[gpu]: Invalid value: "gpu": must be a standard resource type or fully',
        "nvidia.com/gpu: 2",
    ),
]


@pytest.mark.parametrize(("written", "name", "said", "instead"), REFUSALS)
def test_amounts_that_the_api_server_refuses(
    written: str, name: str, said: str, instead: str
) -> None:
    (objection,) = container(f"resources: {{{written}}}").objections
    assert (objection.id, objection.by, objection.result) == (name, "API server", "refused")
    assert said in objection.said
    assert objection.instead.startswith(instead)
    assert objection.where == f"{HERE}:6"


@pytest.mark.parametrize(
    "written",
    [
        "limits: {nvidia.com/gpu: 1}",
        'limits: {nvidia.com/gpu: "2"}, requests: {nvidia.com/gpu: 2}',
        "limits: {nvidia.com/gpu: 1}, requests: {nvidia.com/gpu: 1000m}",
        "limits: {nvidia.com/gpu: 1e0, cpu: 500m, memory: 1.5Gi, hugepages-2Mi: 4Mi}",
        "requests: {cpu: 1, ephemeral-storage: 1Gi}",
        "limits: {nvidia.com/mig-1g.5gb: 1, example.com/nic: 3}",
        "claims: [{name: gpu}]",
        # Only the API server reports these.
        "limit: {cpu: 1}",
        "limits: {cpu: -1, memory: one, disk: 3, example.com/nic: 0.5}",
    ],
)
def test_valid_amounts_have_no_objection(written: str) -> None:
    assert container(f"resources: {{{written}}}").objections == ()


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("+2", 2),
        ("1.5", Fraction(3, 2)),
        (".5k", 500),
        ("2Ki", 2048),
        ("3m", Fraction(3, 1000)),
        ("1E", 10**18),
        ("1E2", 100),
        ("1e-1", Fraction(1, 10)),
    ],
)
def test_quantities_are_exact(text: str, number: Fraction) -> None:
    assert quantity(text) == number


@pytest.mark.parametrize("text", ["", ".", "1e", "1kk", "1 Gi", "0x1", "nan", "1e9999999", "--1"])
def test_invalid_quantities(text: str) -> None:
    assert quantity(text) is None


def test_paths_are_those_of_the_object() -> None:
    (found,) = read("""
        kind: CronJob
        metadata: {name: j}
        spec:
          jobTemplate:
            spec:
              template:
                spec:
                  containers:
                  - {name: c, resources: {limits: {nvidia.com/gpu: 0.1}}}
    """)
    path = "spec.jobTemplate.spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]"
    assert found.objections[0].said.startswith(path)


def test_a_number_in_a_variable_of_gpus_has_the_error_of_the_decoder() -> None:
    (objection,) = container("env: [{name: NVIDIA_DRIVER_CAPABILITIES, value: 0}]").objections
    assert objection.said == (
        "json: cannot unmarshal number into Go struct field EnvVar.env.value of type string"
    )
    assert objection.instead == 'NVIDIA_DRIVER_CAPABILITIES: value: "0"'


def test_only_parts_about_gpus_have_objections() -> None:
    found = read("""
        kind: Pod
        metadata: {name: p, annotations: {n: 1}}
        spec:
          runtimeClass: nvidia
          containers:
          - name: c
            resource: {limits: {nvidia.com/gpu: 1}}
            env: [{name: LEVEL, value: 1}]
          ephemeralContainers:
          - {name: e, resources: {limits: {cpu: 1}}}
    """)
    assert [one.objections for one in found] == [(), ()]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]", ["devices-unbooked"]),
        ("env: [{name: NVIDIA_VISIBLE_DEVICES, value: void}]", []),
        (
            (
                "env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}], "
                "resources: {limits: {nvidia.com/gpu: 1}}"
            ),
            ["devices-by-hand"],
        ),
        (
            (
                "env: [{name: NVIDIA_VISIBLE_DEVICES, value: none}], "
                "resources: {limits: {nvidia.com/gpu: 1}}"
            ),
            ["devices-by-hand"],
        ),
        ("resources: {limits: {nvidia.com/gpu: 0}}", ["zero"]),
        (
            (
                "env: [{name: NVIDIA_VISIBLE_DEVICES, value: void}], "
                "resources: {limits: {nvidia.com/gpu: 0}}"
            ),
            [],
        ),
        (
            "securityContext: {privileged: true}, resources: {limits: {nvidia.com/gpu: 1}}",
            ["privileged"],
        ),
        ("securityContext: {privileged: true}", []),
        (
            "resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpu.shared: 1}}",
            ["several-resources"],
        ),
        ("resources: {limits: {alpha.kubernetes.io/nvidia-gpu: 1}}", ["obsolete"]),
    ],
)
def test_valid_manifests_with_surprising_results_have_warnings(
    written: str, expected: list[str]
) -> None:
    found = container(written)
    assert ids(found) == expected
    assert all(objection.result != "refused" for objection in found.objections)


def test_variable_in_the_manifest_overrides_the_allocation() -> None:
    env = "env: [{name: NVIDIA_VISIBLE_DEVICES, value: void}]"
    (objection,) = container(f"{env}, resources: {{limits: {{{GPU}: 2}}}}").objections
    assert "the container gets no GPU, but is allocated 2 of nvidia.com/gpu" in objection.said


def test_cdi_annotation_of_a_pod_has_a_note() -> None:
    text = """
        kind: Pod
        metadata: {name: p, annotations: {cdi.k8s.io/x: nvidia.com/gpu=1, team: ml}}
        spec: {containers: [{name: c, image: busybox}]}
    """
    (found,) = read(text)
    (note,) = found.notes
    assert note.startswith("the pod annotation cdi.k8s.io/x does not assign a device")


def test_unusual_runtime_class_has_a_note() -> None:
    (found,) = read("""
        kind: Pod
        metadata: {name: p}
        spec:
          runtimeClassName: nvidai
          containers:
          - {name: c, resources: {limits: {nvidia.com/gpu: 1}}}
    """)
    assert found.objections == ()
    assert "kubectl get runtimeclass" in " ".join(found.notes)


def test_ephemeral_containers_and_pod_resources_have_no_devices() -> None:
    found = read("""
        kind: Pod
        metadata: {name: p}
        spec:
          resources: {limits: {nvidia.com/gpu: 1}}
          containers:
          - {name: c}
          ephemeralContainers:
          - {name: e, resources: {limits: {nvidia.com/gpu: 1}}}
    """)
    assert [ids(one) for one in found] == [["pod-level-gpu"], ["ephemeral-resources"]]
    assert "an ephemeral container gets no devices" in found[1].notes[0]
    assert found[1].gpus == {}


def test_init_containers_reserve_the_larger_sum() -> None:
    found = read("""
        kind: Pod
        metadata: {name: p}
        spec:
          runtimeClassName: nvidia
          initContainers:
          - {name: i, resources: {limits: {nvidia.com/gpu: 4}}}
          - {name: s, restartPolicy: Always, resources: {limits: {nvidia.com/gpu: 1}}}
          containers:
          - {name: c, resources: {limits: {nvidia.com/gpu: 2}}}
    """)
    assert "reserves 4, the larger of 4 for an init container and 3" in found[0].notes[0]
    assert "3 in total" in found[1].notes[0]
    assert found[2].notes == ()


def test_mounts_of_devices_in_the_manifest_have_objections() -> None:
    (found,) = read("""
        kind: Pod
        metadata: {name: p}
        spec:
          volumes:
          - {name: null, hostPath: {path: /dev/null}}
          - {name: n, hostPath: {path: /dev/null}}
          - {name: gpu, hostPath: {path: /dev/nvidia0}}
          containers:
          - name: c
            volumeMounts:
            - {name: n, mountPath: /var/run/nvidia-container-devices/all}
            - {name: gpu, mountPath: /dev/nvidia0}
    """)
    assert ids(found) == ["mounted-by-hand", "node-by-hand"]
    assert "Operation not permitted" in found.objections[1].said


def test_other_vendors_and_resource_claims_have_notes() -> None:
    found = container("resources: {limits: {gpu.intel.com/i915: 1}, claims: [{name: g}]}")
    assert (found.gpus, found.objections, found.claims) == ({}, (), ("g",))
    assert "belongs to another vendor" in found.notes[0]
    assert "Dynamic Resource Allocation" in found.notes[1]


@pytest.mark.parametrize(
    ("written", "note"),
    [
        ("image: nvidia/cuda:12.4.1-base", "requests no GPU, but CUDA images set"),
        (
            "env: [{name: NVIDIA_DRIVER_CAPABILITIES, valueFrom: {resourceFieldRef: {}}}]",
            "NVIDIA_DRIVER_CAPABILITIES is from the container's",
        ),
        ("envFrom: [{secretRef: {name: s}}]", "NVIDIA_VISIBLE_DEVICES may be among every key of"),
        ("securityContext: {privileged: true}", "has the device nodes of all GPUs"),
    ],
)
def test_access_of_a_container_without_gpus_has_a_note(written: str, note: str) -> None:
    (found,) = container(written).notes
    assert note in found


def test_annotation_of_a_pod_has_a_note_with_the_setting() -> None:
    (found,) = read("""
        kind: Pod
        metadata: {annotations: {cdi.k8s.io/x: nvidia.com/gpu=0}}
        spec: {containers: [{name: c, image: busybox}]}
    """)
    (note,) = found.notes
    assert "acceptAnnotations is any (a grant) or none (ignored)" in note


def test_container_unrelated_to_gpus_has_no_notes() -> None:
    assert container("image: busybox").notes == ()
