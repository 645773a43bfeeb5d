# SPDX-License-Identifier: Apache-2.0
"""Which requests of containers the NRI plugin accepts, by origin, namespace and settings."""

from __future__ import annotations

import base64
import copy
import json
from pathlib import Path
from typing import Any

import pytest

from gpuhook.device_plugin.api.deviceplugin_pb2 import CDIDevice, ContainerAllocateResponse, Mount
from gpuhook.device_plugin.kubelet.device_checkpoint import NAME
from gpuhook.entry.plan_context import sources_logged
from gpuhook.errors import GpuhookError
from gpuhook.node.kept_log import KeptLog
from gpuhook.nri.policy.kubelet_grants import KubeletGrants
from gpuhook.nri.policy.pod_annotations import PREFIX
from gpuhook.nri.policy.request_policy import RequestPolicy
from gpuhook.nri.wire import protobuf_wire as wire
from gpuhook.nri.wire.nri_messages import NriContainer, PodSandbox
from gpuhook.nri.wire.protobuf_wire import Message
from gpuhook.request import annotation_origin
from gpuhook.request.policy import WON, privileged
from tests.plans import chosen, this_context
from tests.refusal import refused

UUID = "GPU-5c9a1f7e-2f0b-4d35-a1c8-0b6d9e4f7a21"
DEVICES = "NVIDIA_VISIBLE_DEVICES"
ANY: dict[str, Any] = {"nri_namespaces": ["*"]}
OWN = {"nri_namespaces": ["default"]}
FAILS = {"on_refusal": "fail"}


def checkpoint(
    place: Path,
    *answers: dict[str, str],
    name: str = "main",
    uid: str = "uid",
    mounts: tuple[str, ...] = (),
    cdi_devices: tuple[str, ...] = (),
) -> None:
    """Write the kubelet's checkpoint with an answer for each resource of a container."""
    entries = [
        {
            "PodUID": uid,
            "ContainerName": name,
            "ResourceName": f"nvidia.com/gpu-{index}",
            "DeviceIDs": {"0": [UUID]},
            "AllocResp": base64.b64encode(
                ContainerAllocateResponse(
                    envs=envs,
                    cdi_devices=[CDIDevice(name=one) for one in cdi_devices],
                    mounts=[Mount(container_path=path, host_path="/dev/null") for path in mounts],
                ).SerializeToString()
            ).decode(),
        }
        for index, envs in enumerate(answers)
    ]
    data = {"PodDeviceEntries": entries, "RegisteredDevices": {}}
    (place / NAME).write_text(json.dumps({"Data": data, "Checksum": 1}))


def pod_of(namespace: str, handler: str, annotations: dict[str, str]) -> PodSandbox:
    """Return a pod as a runtime describes it."""
    fields = {2: "pod", 3: "uid", 4: namespace, 7: handler}
    texts = b"".join(wire.encode_text(number, text) for number, text in fields.items())
    return PodSandbox(Message(texts + encoded(6, annotations)))


def encoded(number: int, values: dict[str, str]) -> bytes:
    """Return a map of texts, also of bytes that are not UTF-8, which a pod cannot send."""
    pairs = (
        b"".join(
            wire.encode_bytes(index, text.encode("utf-8", "surrogateescape"))
            for index, text in enumerate(pair, 1)
        )
        for pair in values.items()
    )
    return b"".join(wire.encode_bytes(number, pair) for pair in pairs)


class Asked:
    """A container and the decision on it: `names` are those that a plan is made of."""

    def __init__(
        self,
        place: Path,
        env: list[str],
        *,
        settings: dict[str, Any] | None = None,
        pod: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        devices: list[dict[str, Any]] | None = None,
        hooks: dict[str, Any] | None = None,
        capabilities: list[str] | None = None,
        mounts: tuple[str, ...] = (),
        namespace: str = "default",
        handler: str = "",
    ) -> None:
        log = KeptLog()
        context = this_context(chosen(**(settings or {})), log)
        container = NriContainer(Message(wire.encode_text(3, "main")))
        spec = {
            **container.spec,
            "process": {"env": env, "capabilities": {"bounding": capabilities or []}},
            "annotations": annotations or {},
            "linux": {"devices": devices or []},
            "hooks": hooks or {},
            "mounts": [{"destination": path, "source": "/dev/null"} for path in mounts],
        }
        self.before = copy.deepcopy(spec)
        sandbox = pod_of(namespace, handler, pod or {})
        RequestPolicy(KubeletGrants(str(place))).restrict(spec, sandbox, container, context)
        self.spec = spec
        self.env = spec["process"]["env"]
        sources = sources_logged(copy.deepcopy(spec), context)
        self.extras = [
            name
            for one in context.node.extra_requests(spec, context.settings)
            if one.result == WON
            for name in one.names
        ]
        self.names = [name for _, one in sources for name in one.names]
        self.where = "".join(one.where for _, one in sources)
        self.codes = [warning.code for warning in log.warnings]
        self.said = " ".join(warning.message for warning in log.warnings)

    @property
    def is_void(self) -> bool:
        """Whether the container's variable requests nothing, for any program that reads it."""
        return [one for one in self.env if one.startswith(DEVICES)] == [f"{DEVICES}=void"]


def test_container_without_a_request_is_unchanged(tmp_path: Path) -> None:
    asked = Asked(tmp_path, ["PATH=/bin", f"{DEVICES}=void"])
    assert asked.spec == asked.before
    assert (asked.names, asked.codes) == ([], [])


@pytest.mark.parametrize("value", ["all", "0", UUID])
@pytest.mark.parametrize("settings", [{}, {"nri_namespaces": ["other"]}])
def test_variable_that_no_device_plugin_set_is_refused(
    value: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    """An image may set it, and NRI announces every container of the node."""
    asked = Asked(tmp_path, ["A=1", f"{DEVICES}={value}"], settings=settings)
    assert (asked.names, asked.codes) == ([], ["GH1007"])
    assert "namespace default is not in nri.namespaces" in asked.said
    assert asked.env == ["A=1", f"{DEVICES}=void"]


def test_refused_variable_fails_the_container_if_the_settings_say_so(tmp_path: Path) -> None:
    with refused("GH1026"):
        Asked(tmp_path, [f"{DEVICES}=all"], settings=FAILS)


def test_variable_of_the_device_plugin_applies(tmp_path: Path) -> None:
    """Also with settings that forbid the choice of an image."""
    checkpoint(tmp_path, {DEVICES: UUID, "GPUHOOK_REPLICAS": f"{UUID}::1"})
    for settings in ({}, {"accept_env_when_unprivileged": False}, FAILS):
        asked = Asked(tmp_path, ["A=1", f"{DEVICES}={UUID}"], settings=settings)
        assert (asked.names, asked.codes) == ([UUID], [])


@pytest.mark.parametrize("tenant", ["all", "0,1", "GPU-other"])
def test_variable_of_a_pod_cannot_widen_the_assignment(tenant: str, tmp_path: Path) -> None:
    """The pod's value replaces that of the device plugin; the device plugin's applies."""
    checkpoint(tmp_path, {DEVICES: UUID})
    asked = Asked(tmp_path, [f"{DEVICES}={tenant}", "A=1"])
    assert asked.names == [UUID]


@pytest.mark.parametrize("other", [{"name": "side"}, {"uid": "older"}])
def test_assignment_of_another_container_does_not_apply(
    other: dict[str, Any], tmp_path: Path
) -> None:
    checkpoint(tmp_path, {DEVICES: UUID}, **other)
    asked = Asked(tmp_path, [f"{DEVICES}={UUID}"])
    assert (asked.names, asked.is_void) == ([], True)


def test_two_resources_of_one_container(tmp_path: Path) -> None:
    checkpoint(tmp_path, {"MPS": "1"}, {DEVICES: UUID})
    assert Asked(tmp_path, [f"{DEVICES}={UUID}"]).names == [UUID]


def test_checkpoint_is_read_again_after_a_change(tmp_path: Path) -> None:
    grants = KubeletGrants(str(tmp_path))
    assert grants.variables("uid", "main") == {}
    checkpoint(tmp_path, {DEVICES: UUID})
    assert grants.variables("uid", "main") == {DEVICES: UUID}
    checkpoint(tmp_path, {DEVICES: UUID}, {"B": "2"})
    assert grants.variables("uid", "main") == {DEVICES: UUID, "B": "2"}
    (tmp_path / NAME).unlink()
    assert grants.variables("uid", "main") == {}


DAMAGED = {
    "no JSON": "{",
    "no data": "{}",
    "a list": "[]",
    "no base64": '{"Data": {"PodDeviceEntries": [{"PodUID": "uid", "ContainerName": "main",'
    ' "AllocResp": "%%"}]}}',
    "no protobuf": '{"Data": {"PodDeviceEntries": [{"PodUID": "uid", "ContainerName": "main",'
    ' "AllocResp": "Dw=="}]}}',
    "no pod": '{"Data": {"PodDeviceEntries": [{}]}}',
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_damaged_checkpoint_fails_a_container_with_a_named_device(
    text: str, tmp_path: Path
) -> None:
    """It may be the kubelet's assignment. An image that says `all` starts without."""
    (tmp_path / NAME).write_text(text)
    with refused("GH2710"):
        Asked(tmp_path, [f"{DEVICES}={UUID}"])
    asked = Asked(tmp_path, [f"{DEVICES}=all"])
    assert (asked.names, asked.is_void) == ([], True)
    assert asked.codes == ["GH2710", "GH1007"]


def test_checkpoint_that_is_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    with refused("GH2710"):
        Asked(tmp_path, [f"{DEVICES}={UUID}"])


@pytest.mark.parametrize(
    ("settings", "handler", "names"),
    [
        (ANY, "", ["0"]),
        (OWN, "", ["0"]),
        ({"nri_runtime_classes": ["nvidia"]}, "nvidia", ["0"]),
        ({"nri_runtime_classes": ["nvidia"]}, "", []),
        ({"nri_runtime_classes": [""]}, "", []),
        ({**ANY, "accept_env_when_unprivileged": False}, "", []),
    ],
)
def test_variables_of_listed_pods_apply_by_the_nodes_settings(
    settings: dict[str, Any], handler: str, names: list[str], tmp_path: Path
) -> None:
    asked = Asked(tmp_path, [f"{DEVICES}=0"], settings=settings, handler=handler)
    assert asked.names == names


def test_legacy_image_requests_no_gpu_by_itself(tmp_path: Path) -> None:
    asked = Asked(tmp_path, ["CUDA_VERSION=8.0"])
    assert (asked.names, asked.is_void) == ([], True)
    assert Asked(tmp_path, ["CUDA_VERSION=8.0"], settings=ANY).names == ["all"]
    newer = Asked(tmp_path, ["CUDA_VERSION=12.0", "NVIDIA_REQUIRE_CUDA=cuda>=12.0"])
    assert newer.spec == newer.before


def test_annotation_of_the_kubelet_applies(tmp_path: Path) -> None:
    asked = Asked(tmp_path, [], annotations={"cdi.k8s.io/plugin_1": "nvidia.com/gpu=1"})
    assert asked.names == ["nvidia.com/gpu=1"]


MOUNTS = {"accept_volume_mounts": True}
BELOW = "/var/run/nvidia-container-devices"


def test_mount_of_a_volume_is_refused(tmp_path: Path) -> None:
    """A pod may mount /dev/null of the host there: only mounts of a device plugin count."""
    own, others = f"{BELOW}/{UUID}", (f"{BELOW}/../nvidia-container-devices/all", f"{BELOW}/all/")
    for mounts in ((other,) for other in others):
        assert Asked(tmp_path, [], mounts=mounts, settings=MOUNTS).names == []
    checkpoint(tmp_path, {"MPS": "1"}, mounts=(own,))
    asked = Asked(tmp_path, [], mounts=(own, *others), settings=MOUNTS)
    assert (asked.names, asked.codes) == ([UUID], ["GH1007"])
    listed = Asked(tmp_path, [], mounts=others, settings={**MOUNTS, **OWN})
    assert listed.names == ["all"]


def test_unknown_directory_of_the_kubelet(tmp_path: Path) -> None:
    """Every kubelet has one: a wrong path must not cost pods their GPUs."""
    with refused("GH2710"):
        Asked(tmp_path / "none", [f"{DEVICES}={UUID}"])
    assert Asked(tmp_path / "none", [f"{DEVICES}=all"]).codes == ["GH2710", "GH1007"]


NODE = {"path": "/dev/nvidia1", "type": "c", "major": 195, "minor": 1}
NOTE = {"cdi.k8s.io/plugin_1": "nvidia.com/gpu=1"}


def test_names_that_the_runtime_has_applied_are_not_applied_twice(tmp_path: Path) -> None:
    """containerd with enable_cdi has put the devices into the container before NRI is called."""
    pod = {f"{PREFIX}/pod": "nvidia.com/gpu=0"}
    hooks = {"createContainer": [{"path": "/usr/bin/gpuhook-hook", "args": ["gpuhook-hook"]}]}
    asked = Asked(
        tmp_path, [], annotations={**NOTE}, devices=[NODE], hooks=hooks, pod=pod, settings=ANY
    )
    assert asked.names == []


@pytest.mark.parametrize("capabilities", [[], ["CAP_SYS_ADMIN"]], ids=["plugin", "privileged"])
def test_nodes_alone_are_not_the_device(capabilities: list[str], tmp_path: Path) -> None:
    """A device plugin can pass nodes beside the names; a privileged container has all nodes."""
    asked = Asked(tmp_path, [], annotations={**NOTE}, devices=[NODE], capabilities=capabilities)
    assert asked.names == ["nvidia.com/gpu=1"]


def test_privileged_container_may_be_requested_for_by_its_pod(tmp_path: Path) -> None:
    """As the pods that manage the GPUs of a node are."""
    pod = {f"{PREFIX}/pod": "nvidia.com/gpu=0"}
    asked = Asked(
        tmp_path, [], devices=[NODE], capabilities=["CAP_SYS_ADMIN"], pod=pod, settings=OWN
    )
    assert asked.names == ["nvidia.com/gpu=0"]


@pytest.mark.parametrize(
    ("hooks", "names"),
    [({}, ["nvidia.com/gpu=1"]), ({"createContainer": [{"path": "/hook", "args": []}]}, [])],
    ids=["dropped", "applied"],
)
def test_cdi_names_of_the_device_plugin(
    hooks: dict[str, Any], names: list[str], tmp_path: Path
) -> None:
    """containerd 1.7 drops them unless enable_cdi is set; a pod names no more of them."""
    void = {DEVICES: "void"}
    checkpoint(tmp_path, void, cdi_devices=("nvidia.com/gpu=1", "example.com/nic=0"))
    devices = [NODE] if hooks else []
    pod = {f"{PREFIX}/pod": "nvidia.com/gpu=0"}
    for env in ([f"{DEVICES}=void"], [f"{DEVICES}=all"]):
        asked = Asked(tmp_path, env, hooks=hooks, devices=devices, pod=pod, settings={})
        assert asked.names == names
    damaged = tmp_path / NAME
    damaged.write_text("{")
    assert Asked(tmp_path, [f"{DEVICES}=void"]).names == []


CRIO = {annotation_origin.CRIO: json.dumps(NOTE)}


@pytest.mark.parametrize("mark", [{}, CRIO], ids=["copied", "cri-o"])
def test_annotation_that_the_runtime_copied_from_the_pod_is_refused(
    mark: dict[str, str], tmp_path: Path
) -> None:
    """CRI-O copies all of them, containerd those of its pod_annotations."""
    pod = {"cdi.k8s.io/mine": "nvidia.com/gpu=all"}
    asked = Asked(tmp_path, [], annotations={**pod, **mark}, pod=pod, settings=ANY)
    assert (asked.names, asked.codes) == ([], ["GH1007"])
    both = Asked(tmp_path, [], annotations={**pod, **NOTE, **mark}, pod=pod)
    assert both.names == ["nvidia.com/gpu=1"]


def test_strict_settings_do_not_refuse_a_permitted_annotation(tmp_path: Path) -> None:
    """Also where the runtime marks which annotations are the kubelet's."""
    settings = {**OWN, "accept_annotations": "kubelet", "accept_env_when_unprivileged": False}
    notes = {annotation_origin.CONTAINERD: "container", annotation_origin.CRIO: "{}"}
    pod = {f"{PREFIX}/pod": "nvidia.com/gpu=0"}
    asked = Asked(tmp_path, [], annotations=notes, pod=pod, settings=settings)
    assert (asked.names, asked.codes) == (["nvidia.com/gpu=0"], [])


@pytest.mark.parametrize("settings", [{}, {"accept_env_when_unprivileged": False}])
@pytest.mark.parametrize(
    "variable", ["NVIDIA_MIG_CONFIG_DEVICES=all", "NVIDIA_IMEX_CHANNELS=0", "NVIDIA_GDS=enabled"]
)
def test_assigned_gpu_brings_no_other_device(
    variable: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    """A pod or an image adds none, and has no privilege by its assignment."""
    env = [f"{DEVICES}={UUID}", variable]
    checkpoint(tmp_path, {DEVICES: UUID})
    asked = Asked(tmp_path, env, settings=settings)
    assert (asked.names, asked.extras, asked.codes) == ([UUID], [], ["GH1007"])
    assert not privileged(asked.spec)
    by_name = Asked(tmp_path, [variable], settings=settings, annotations={**NOTE})
    assert (by_name.names, by_name.extras) == (["nvidia.com/gpu=1"], [])
    name, _, value = variable.partition("=")
    checkpoint(tmp_path, {DEVICES: UUID, name: value})
    asked = Asked(tmp_path, env, settings=settings)
    assert (asked.names, len(asked.extras), asked.codes) == ([UUID], 1, [])


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        (["/container.main", "/pod", ""], "nvidia.com/gpu=0"),
        (["/pod", ""], "nvidia.com/gpu=0"),
        ([""], "nvidia.com/gpu=0"),
        (["/container.side"], ""),
    ],
)
@pytest.mark.parametrize("prefix", [PREFIX, "nvidia.cdi.k8s.io", "amd.cdi.k8s.io"])
def test_most_specific_annotation_of_a_pod_applies(
    prefix: str, keys: list[str], name: str, tmp_path: Path
) -> None:
    pod = {prefix + key: f"nvidia.com/gpu={index}" for index, key in enumerate(keys)}
    asked = Asked(tmp_path, [], pod=pod, settings=OWN)
    assert asked.names == ([name] if name else [])
    assert asked.codes == []
    assert (f"annotation {prefix}{keys[0]}" in asked.where) == bool(name)


def test_annotations_of_pods_are_refused_by_default(tmp_path: Path) -> None:
    pod = {f"{PREFIX}/pod": "nvidia.com/gpu=0"}
    asked = Asked(tmp_path, [], pod=pod)
    assert (asked.names, asked.env, asked.codes) == ([], [], ["GH1007"])
    assert f"annotation {PREFIX}/pod" in asked.said
    with refused("GH1026"):
        Asked(tmp_path, [], pod=pod, settings=FAILS)
    closed = Asked(tmp_path, [], pod=pod, settings={**OWN, "accept_annotations": "none"})
    assert (closed.names, closed.codes) == ([], ["GH1007"])


def test_assignment_of_the_kubelet_wins_over_the_pods_annotation(tmp_path: Path) -> None:
    checkpoint(tmp_path, {DEVICES: UUID})
    pod = {f"{PREFIX}/pod": "nvidia.com/gpu=0"}
    asked = Asked(tmp_path, [f"{DEVICES}={UUID}"], pod=pod)
    assert (asked.names, asked.codes) == ([UUID], [])


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("nvidia.com/gpu=0", {"nri_devices": ["nvidia.com/gpu"]}, ""),
        ("nvidia.com/gpu=0", {"nri_devices": ["nvidia.com/gpu=0"]}, ""),
        ("nvidia.com/gpu=1", {"nri_devices": ["nvidia.com/gpu=0"]}, "not in nri.devices"),
        ("intel.com/gpu=0", {}, "not a GPU of a known vendor"),
        ("intel.com/gpu=0", {"nri_devices": ["intel.com/gpu"]}, ""),
        ("amd.com/gpu=0", {}, ""),
        ("management.nvidia.com/gpu=all", {}, "nri.managementNamespaces only"),
        ("management.nvidia.com/gpu=all", {"nri_management_namespaces": ["default"]}, ""),
        ("management.nvidia.com/gpu=all,nvidia.com/gpu=0", {}, "nri.managementNamespaces only"),
    ],
)
def test_devices_that_annotations_may_name(
    name: str, settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    asked = Asked(tmp_path, [], pod={f"{PREFIX}/pod": name}, settings={**OWN, **settings})
    assert asked.names == ([] if reason else name.split(","))
    assert reason in asked.said


def test_management_namespaces_may_name_nothing_else(tmp_path: Path) -> None:
    settings = {"nri_management_namespaces": ["default"]}
    asked = Asked(tmp_path, [], pod={f"{PREFIX}/pod": "nvidia.com/gpu=0"}, settings=settings)
    assert asked.names == []


@pytest.mark.parametrize(
    ("pod", "code"),
    [
        ({f"{PREFIX}/pod": "0"}, "GH2711"),
        ({f"{PREFIX}/pod": "nvidia.com/gpu=0,GPU-1"}, "GH2711"),
        ({f"{PREFIX}/pod": "nvidia.com/gpu=\udcff"}, "GH1004"),
        ({f"{PREFIX}/pod": "nvidia.com/gpu=\x1b[31m"}, "GH1004"),
        ({f"{PREFIX}/pod": "x" * (4 << 20)}, "GH1004"),
        ({f"{PREFIX}/pod": ",".join(f"a.b/c={n}" for n in range(5000))}, "GH1005"),
        ({f"{PREFIX}/containers.main": "nvidia.com/gpu=0"}, "GH2712"),
        ({f"{PREFIX}/main": "nvidia.com/gpu=0"}, "GH2712"),
    ],
)
def test_invalid_annotation_is_an_error(pod: dict[str, str], code: str, tmp_path: Path) -> None:
    with pytest.raises(GpuhookError) as caught:
        Asked(tmp_path, [], pod=pod, settings=ANY)
    assert caught.value.code == code
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", ["", " ", ",,"])
def test_empty_annotation_requests_nothing(text: str, tmp_path: Path) -> None:
    asked = Asked(tmp_path, [], pod={f"{PREFIX}/pod": text}, settings=ANY)
    assert (asked.names, asked.codes) == ([], [])
