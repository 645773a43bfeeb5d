# SPDX-License-Identifier: Apache-2.0
"""The device plugin's allocations for the containers of a pod, and objections on that node."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

import gpuhook
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.errors import GpuhookError
from gpuhook.explain.pods.container_spec import as_spec
from gpuhook.explain.pods.plugin_offer import configuration
from gpuhook.explain.pods.pod_answers import of_pods
from gpuhook.explain.pods.pod_requests import Allocated, PodRequest
from gpuhook.explain.pods.pod_requests import document as pod_document
from gpuhook.explain.text import pod_text
from gpuhook.host.hot.settings import Settings
from gpuhook.request import parse, policy
from gpuhook.request.replicas import replicas_of
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.inventory.inventory import Node
from tests.plans import described, planned
from tests.unit.offering import H100, T4, changed, part_of
from tests.unit.pod_texts import GPU, HERE, container, read

SCHEMA = json.loads(
    Path(gpuhook.__file__).with_name("schemas").joinpath("pod.json").read_text("utf-8")
)
SLICES = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
RENAMED = SLICES.replace("timeSlicing: {", "timeSlicing: {renameByDefault: true, ")
SINGLE = SLICES.replace("timeSlicing: {", "timeSlicing: {failRequestsGreaterThanOne: true, ")
UNITS = "sharing: {memoryUnits: {resources: [{name: nvidia.com/gpu, unit: GiB, rename: gpu}]}}"
MPS = "flags: {mpsRoot: /mps}\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
UUID = T4.gpus[0].uuid


def _configured(directory: Path, text: str) -> Configuration:
    path = directory / "plugin.yaml"
    path.write_text(f"version: v1\n{text}\n", encoding="utf-8")
    return configuration(str(path))


def _asking(**amounts: int) -> str:
    names = {"gpu": GPU, "shared": "nvidia.com/gpu.shared", "shard": "nvidia.com/gpu.shard"}
    limits = ", ".join(f"{names[name]}: {amount}" for name, amount in amounts.items())
    return f"resources: {{limits: {{{limits}}}}}"


def _allocated(asked: PodRequest, node: Node, chosen: Configuration) -> Allocated:
    (given,) = of_pods([asked], [part_of(node)], chosen)
    return given


def _answered(directory: Path, text: str = "", **amounts: int) -> Allocated:
    return _allocated(container(_asking(**amounts)), T4, _configured(directory, text))


def test_whole_gpu_is_one_unit() -> None:
    given = _allocated(container(_asking(gpu=1)), T4, configuration(None))
    (answer,) = given.answers
    assert (answer.resource, answer.sharing, answer.units) == (GPU, "none", (UUID,))
    assert [device.index for device in answer.devices] == ["0"]
    assert given.allocation.envs == {"NVIDIA_VISIBLE_DEVICES": UUID}
    assert given.objections == ()
    assert "no other container gets the GPU" in answer.isolation[0].isolation.memory


def test_slice_lists_what_is_not_isolated(tmp_path: Path) -> None:
    given = _answered(tmp_path, SLICES, gpu=1)
    assert given.units == (f"{UUID}::0",)
    assert given.allocation.envs["GPUHOOK_REPLICAS"] == f"{UUID}::0"
    assert given.answers[0].isolation[0].isolation.memory.startswith("not limited")


def test_two_slices_of_one_gpu_have_a_warning(tmp_path: Path) -> None:
    (objection,) = _answered(tmp_path, SLICES, gpu=2).objections
    assert (objection.id, objection.by, objection.result) == (
        "slices-of-one",
        "device plugin",
        "warning",
    )
    assert objection.instead == f"{GPU}: 1"


def test_two_slices_are_refused_if_the_configuration_forbids_them(tmp_path: Path) -> None:
    given = _answered(tmp_path, SINGLE, gpu=2)
    assert given.answers == ()
    (objection,) = given.objections
    assert (objection.by, objection.result) == ("device plugin", "refused")
    assert objection.said.startswith(
        "UnexpectedAdmissionError: Allocate failed due to rpc error: code = InvalidArgument desc = "
        "GH1852: "
    )
    assert objection.said.endswith(", which is unexpected")


def test_unknown_resource_is_pending_with_the_nearest_name(tmp_path: Path) -> None:
    (objection,) = _answered(tmp_path, RENAMED, shard=1).objections
    assert (objection.id, objection.by, objection.result) == (
        "resource-unknown",
        "scheduler",
        "pending",
    )
    assert objection.said == ("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.shard.")
    assert objection.instead.startswith("nvidia.com/gpu.shared: 1; this node offers")


def test_renamed_resource_has_only_its_new_name(tmp_path: Path) -> None:
    assert _answered(tmp_path, RENAMED, shared=1).units == (f"{UUID}::0",)
    assert [one.id for one in _answered(tmp_path, RENAMED, gpu=1).objections] == [
        "resource-unknown"
    ]


def test_resource_of_the_configuration_is_allocated(tmp_path: Path) -> None:
    configured = _configured(tmp_path, 'resources: {gpus: [{pattern: "*", name: card}]}')
    asked = container("resources: {limits: {nvidia.com/card: 1}}")
    assert _allocated(asked, T4, configured).units == (UUID,)
    assert "only a plugin's configuration can define" in " ".join(asked.notes)


def test_more_units_than_the_node_has_are_pending() -> None:
    given = _allocated(container(_asking(gpu=9)), H100, Configuration())
    (objection,) = given.objections
    assert (objection.id, objection.result) == ("insufficient", "pending")
    assert "8 at most on this node, 9 requested" in objection.instead


def test_lost_gpu_is_not_allocated() -> None:
    node = changed(T4, 0, lost="fallen off the bus")
    (objection,) = _allocated(container(_asking(gpu=1)), node, Configuration()).objections
    assert "0 at most on this node" in objection.instead
    assert "GPU 0 is unhealthy: it is lost (fallen off the bus)" in objection.instead


def test_replicas_above_the_limit_of_mps_are_insufficient(tmp_path: Path) -> None:
    many = _configured(tmp_path, MPS.replace("replicas: 4", "replicas: 60"))
    (objection,) = _allocated(container(_asking(gpu=1)), T4, many).objections
    assert objection.id == "insufficient"
    assert "48" in objection.instead


def test_memory_units_are_of_one_gpu_or_refused(tmp_path: Path) -> None:
    configured = _configured(tmp_path, UNITS)
    given = _allocated(container(_asking(gpu=60)), H100, configured)
    assert len(given.answers[0].devices) == 1
    assert given.objections == ()
    (objection,) = _allocated(container(_asking(gpu=100)), H100, configured).objections
    assert "GH1849" in objection.said
    assert "limited to 1Gi a unit" in given.answers[0].isolation[0].isolation.memory


def test_mps_client_gets_its_daemon(tmp_path: Path) -> None:
    given = _answered(tmp_path, MPS, gpu=1)
    assert given.allocation.envs["CUDA_MPS_PIPE_DIRECTORY"] == "/run/nvidia-mps/pipe"
    assert "/mps/gpu/pipe" in [mount.host_path for mount in given.allocation.mounts]


@pytest.mark.parametrize(
    ("strategy", "name"), [("cdi-cri", "cdi_devices"), ("cdi-annotations", "annotations")]
)
def test_cdi_devices_are_for_the_engine(tmp_path: Path, strategy: str, name: str) -> None:
    flags = f"flags: {{plugin: {{deviceListStrategy: [{strategy}]}}}}"
    given = _answered(tmp_path, flags, gpu=1)
    assert getattr(given.allocation, name)
    assert given.cdi_devices == (f"k8s.device-plugin.nvidia.com/gpu={UUID}",)
    spec = as_spec(container(_asking(gpu=1)), given, T4.device_nodes)
    assert not any(key.startswith("cdi.k8s.io/") for key in spec["annotations"])


def test_containers_of_a_pod_share_only_the_units_of_an_init_container() -> None:
    found = read("""
        kind: Pod
        metadata: {name: p}
        spec:
          initContainers:
          - {name: s, restartPolicy: Always, resources: {limits: {nvidia.com/gpu: 1}}}
          - {name: i, resources: {limits: {nvidia.com/gpu: 2}}}
          containers:
          - {name: a, resources: {limits: {nvidia.com/gpu: 1}}}
          - {name: b, resources: {limits: {nvidia.com/gpu: 6}}}
    """)
    given = of_pods(found, [part_of(H100)], Configuration())
    side, init, first, second = (set(one.units) for one in given)
    assert first < init
    assert init - first < second
    assert not side & (init | first | second)
    assert not first & second
    assert len(side | first | second) == 8


def test_units_of_another_container_are_not_free() -> None:
    found = read("""
        kind: Pod
        metadata: {name: p}
        spec:
          containers:
          - {name: a, resources: {limits: {nvidia.com/gpu: 6}}}
          - {name: b, resources: {limits: {nvidia.com/gpu: 3}}}
    """)
    _, second = of_pods(found, [part_of(H100)], Configuration())
    (objection,) = second.objections
    assert "2 at most on this node, 3 requested; 6 are already allocated" in objection.instead


def test_annotations_of_the_pod_do_not_reach_the_runtime() -> None:
    asked = replace(container("image: x"), annotations={"a.example/x": "1"})
    assert "a.example/x" not in as_spec(asked)["annotations"]


def test_each_pod_is_alone_on_the_node() -> None:
    one = "kind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: c, " + _asking(gpu=1) + "}]}"
    found = read("\n---\n".join(one % name for name in "ab"))
    assert [given.units for given in of_pods(found, [part_of(T4)], Configuration())] == [
        (UUID,)
    ] * 2


def test_configuration_that_does_not_fit_the_node_is_a_fault(tmp_path: Path) -> None:
    text = SLICES.replace("replicas: 4", "replicas: 4, memory: 10Gi")
    with pytest.raises(GpuhookError) as raised:
        _answered(tmp_path, text, gpu=1)
    assert raised.value.code == "GH1847"


def test_broken_configuration_is_a_fault_of_its_file(tmp_path: Path) -> None:
    with pytest.raises(GpuhookError) as raised:
        _configured(tmp_path, "sharing: 1")
    assert raised.value.code == "GH1800"


def test_invisible_extras_have_a_warning(tmp_path: Path) -> None:
    given = _answered(tmp_path, "flags: {gdrcopyEnabled: true}", gpu=1)
    assert given.warnings == ("gdrcopyEnabled: their additions are not shown",)


def test_variable_of_the_plugin_applies_unless_the_pod_sets_it() -> None:
    asked = container(_asking(gpu=1))
    given = _allocated(asked, T4, Configuration())
    image = ("NVIDIA_VISIBLE_DEVICES=all", "PATH=/bin")
    spec = as_spec(asked, given, T4.device_nodes, image_env=image)
    assert parse.environment(spec) == {"NVIDIA_VISIBLE_DEVICES": UUID, "PATH": "/bin"}
    by_hand = replace(asked, env={"NVIDIA_VISIBLE_DEVICES": "void"})
    spec = as_spec(by_hand, given, T4.device_nodes, image_env=image)
    assert parse.environment(spec)["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_runtime_grants_the_devices_of_the_plugin(tmp_path: Path) -> None:
    asked = container(_asking(gpu=1))
    given = _allocated(asked, H100, _configured(tmp_path, SLICES))
    spec = as_spec(asked, given, H100.device_nodes)
    injection = planned(spec, described(H100))
    grant = injection.grant
    assert injection.is_given
    (device,) = given.answers[0].devices
    paths = [node["path"] for node in grant.edits["deviceNodes"]]
    assert set(device.paths) <= set(paths)
    found = replicas_of(spec, grant.devices, lambda: [device.uuid])
    assert found == list(given.units)


def test_mounts_of_the_plugin_are_a_request(tmp_path: Path) -> None:
    flags = "flags: {plugin: {deviceListStrategy: [volume-mounts]}}"
    asked = container(_asking(gpu=1))
    given = _allocated(asked, T4, _configured(tmp_path, flags))
    spec = as_spec(asked, given)
    settings = Settings()
    settings.accept_volume_mounts = True
    sources = parse.sources(spec, vocabulary.VOCABULARY, settings.annotation_prefixes)
    chosen = policy.judge(sources, spec, settings).chosen
    assert chosen is not None
    assert (chosen.kind, chosen.names) == (parse.MOUNTS, [UUID])


def test_device_nodes_of_the_plugin_have_the_numbers_of_the_node(tmp_path: Path) -> None:
    flags = "flags: {plugin: {passDeviceSpecs: true}}"
    asked = container(_asking(gpu=1))
    given = _allocated(asked, T4, _configured(tmp_path, flags))
    linux = as_spec(asked, given, T4.device_nodes)["linux"]
    numbers = {device["path"]: (device["major"], device["minor"]) for device in linux["devices"]}
    assert numbers["/dev/nvidia0"] == (195, 0)
    assert "/dev/nvidiactl" in numbers
    rules = linux["resources"]["devices"]
    assert rules[0] == {"allow": False, "access": "rwm"}
    assert {(rule["major"], rule["minor"]) for rule in rules[1:]} == set(numbers.values())


def test_privileged_container_has_all_nodes() -> None:
    asked = container("securityContext: {privileged: true}")
    spec = as_spec(asked, None, H100.device_nodes)
    assert policy.privileged(spec)
    paths = {device["path"] for device in spec["linux"]["devices"]}
    assert {f"/dev/nvidia{number}" for number in range(8)} <= paths
    assert not policy.privileged(as_spec(container("image: x")))


@pytest.mark.parametrize("text", ["", SLICES, SINGLE, UNITS, MPS, RENAMED])
def test_document_fits_its_schema(tmp_path: Path, text: str) -> None:
    asked = container(_asking(gpu=2))
    given = _allocated(asked, H100, _configured(tmp_path, text))
    for document in (pod_document(asked, given), pod_document(asked)):
        jsonschema.validate(json.loads(json.dumps(document)), SCHEMA)


def test_text_is_complete_and_ordered(tmp_path: Path) -> None:
    asked = container("securityContext: {privileged: true}, " + _asking(gpu=2))
    given = _allocated(asked, T4, _configured(tmp_path, SLICES))
    lines = list(pod_text.lines(pod_document(asked, given)))
    assert asked.title == f"Pod/p in default, container c ({HERE}:6)"
    beginnings = [
        "requests 2 of nvidia.com/gpu",
        "warning by the kubelet: is privileged",
        "warning by the device plugin: 2 of nvidia.com/gpu",
        "note: no runtimeClassName",
        "the device plugin allocates 2 of nvidia.com/gpu, shared by time-slicing: GPU 0 (Tesla T4)",
        "  memory: not limited",
        "the device plugin sets NVIDIA_VISIBLE_DEVICES=",
    ]
    places = [
        next(n for n, line in enumerate(lines) if line.startswith(start)) for start in beginnings
    ]
    assert places == sorted(places)
