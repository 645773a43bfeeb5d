# SPDX-License-Identifier: Apache-2.0
"""Pods of containerd 1.7 and 2.1 that get their GPUs through `gpuhook nri run`.

A device plugin's answer is written to the kubelet's checkpoint, as a kubelet does. containerd 1.7
gets each device, mount and hook of a grant, containerd 2.1 applies the CDI spec itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from gpuhook.device_plugin.allocate.container_allocation import Allocation
from gpuhook.node import daemons
from gpuhook.node_facts import nri_facts
from gpuhook.node_facts.check import ExaminedNode
from gpuhook.node_facts.sources import node_readings
from gpuhook.node_facts.sources.node_readings import Readings
from gpuhook.node_facts.sources.node_tree import DirectoryTree
from gpuhook.nri.policy.pod_annotations import PREFIX
from tests.contract.cri import Pod
from tests.contract.installation import ALL_CONTROL, CONTROL, KIND, Installation
from tests.contract.nri_node import MODES, SUITES, NriNode, nri_node
from tests.contract.test_integrations import CACHE, LINKS, LOOKED_UP, assert_cached, assert_found
from tests.contract.views import View, questions
from tests.nri import kubelet_checkpoint
from tests.nri.nri_plugin import NriPlugin

DEVICES = "NVIDIA_VISIBLE_DEVICES"
SMI = ["/usr/bin/nvidia-smi", "-L"]  # the stub opens each GPU


@pytest.fixture(scope="module", params=SUITES)
def suite(request: pytest.FixtureRequest) -> str:
    """Return the Debian release of a containerd."""
    return str(request.param)


@pytest.fixture(scope="module")
def running(
    suite: str, node8: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[NriNode, NriPlugin]]:
    """Yield a node with that containerd, and the plugin that is connected to it."""
    place = tmp_path_factory.mktemp("nri")
    with nri_node(node8, place, suite) as made, made.plugin() as plugin:
        yield made, plugin


@pytest.fixture
def node(running: tuple[NriNode, NriPlugin]) -> NriNode:
    return running[0]


@pytest.fixture
def plugin(running: tuple[NriNode, NriPlugin]) -> NriPlugin:
    return running[1]


def gpus(view: View) -> set[str]:
    """Return the paths of the GPUs' own nodes."""
    return {path for path in view.gpus() if path[11:].isdecimal()}


def uuid(node: NriNode, index: int) -> str:
    return str(node.node.gpu(index).uuid)


def test_device_plugins_variable(suite: str, node: NriNode, plugin: NriPlugin) -> None:
    """The container has its GPU alone, and finds the driver as by any other integration."""
    asked = questions(
        *LINKS, tries=[node.node.number(2), node.node.number(3)], runs=[LOOKED_UP, CACHE, SMI]
    )
    view = node.view(uuid(node, 2), *asked)
    control = ALL_CONTROL if MODES[suite] == "cdi" else CONTROL
    assert set(view.gpus()) == {*control, node.node.device(2)}
    assert all(one.allowed for one in view.gpus().values())
    assert view.tries[node.node.number(2)] != "EPERM"
    assert view.tries[node.node.number(3)] == "EPERM"
    assert view.values(DEVICES) == ["void"]
    assert [view.paths[path].kind for path in LINKS] == ["link"] * 3
    assert_found(view.runs[0], str(node.node.node.node.driver.version))
    assert_cached(view.runs[1])
    assert view.runs[2].rc == 0, view.runs[2]
    assert f"{node.node.device(2)} ({node.node.number(2)}): allowed" in view.runs[2].output
    assert plugin.lines("injected")[-1]["mode"] == MODES[suite]


def test_container_without_a_request_is_unchanged(node: NriNode, plugin: NriPlugin) -> None:
    """It has what it has without the plugin, and no line in the log."""
    before = len(plugin.lines("unchanged"))
    with node.cri.pod("plain", "runc") as pod:
        view = node.cri.view(pod, Allocation())
    assert view.gpus() == {}
    assert view.values(DEVICES) == []
    assert not [mount for mount in view.mounts if "nvidia" in mount]
    assert len(plugin.lines("unchanged")) == before


def test_variable_of_an_image_is_void(node: NriNode, plugin: NriPlugin) -> None:
    """No device plugin set it, so the container starts without a GPU, and the log says why."""
    with node.cri.pod("image", "runc") as pod:
        view = node.cri.view(pod, Allocation(envs={DEVICES: "all"}))
    assert (view.gpus(), view.values(DEVICES)) == ({}, ["void"])
    line = next(one for one in reversed(plugin.lines()) if one.get("code") == "GH1007")
    assert (line["pod"], line["namespace"]) == ("image", "default")


def test_variable_of_a_pod_does_not_widen_the_assignment(node: NriNode) -> None:
    with node.cri.pod("wider", "runc") as pod:
        node.assign(pod, uuid(node, 1))
        view = node.cri.view(pod, Allocation(envs={DEVICES: "all"}))
    assert gpus(view) == {node.node.device(1)}


def test_variable_in_a_listed_namespace(node: NriNode) -> None:
    with node.cri.pod("chooser", "runc", namespace="chosen") as pod:
        view = node.cri.view(pod, Allocation(envs={DEVICES: "0,3"}))
    assert gpus(view) == {node.node.device(0), node.node.device(3)}


@pytest.mark.parametrize("prefix", [PREFIX, "nvidia.cdi.k8s.io"])
def test_annotations_of_a_pod(prefix: str, node: NriNode) -> None:
    """Each container has its own, or that of the pod; another namespace gets nothing."""
    notes = {f"{prefix}/container.first": f"{KIND}=1", f"{prefix}/pod": f"{KIND}=4,{KIND}=5"}
    with node.cri.pod("noted", "runc", "chosen", notes) as pod:
        first = node.cri.view(pod, Allocation(), name="first")
        second = node.cri.view(pod, Allocation(), name="second")
    assert gpus(first) == {node.node.device(1)}
    assert gpus(second) == {node.node.device(4), node.node.device(5)}
    with node.cri.pod("noted", "runc", "default", notes) as pod:
        assert node.cri.view(pod, Allocation()).gpus() == {}


def test_annotation_of_the_kubelet(node: NriNode) -> None:
    """The plugin's strategy cdi-annotations, with or without CDI in containerd: one injection."""
    note = {"cdi.k8s.io/plugin_1": f"{KIND}={uuid(node, 6)}"}
    with node.cri.pod("kubelet", "runc") as pod:
        view = node.cri.view(pod, Allocation(annotations=note))
    assert gpus(view) == {node.node.device(6)}


def test_cdi_names_of_the_device_plugin(node: NriNode) -> None:
    """The plugin's strategy cdi-cri: containerd 1.7 drops the names, 2.1 applies them itself."""
    names, void = (f"{KIND}={uuid(node, 6)}",), {DEVICES: "void"}
    with node.cri.pod("kubelet", "runc") as pod:
        uid = pod.config.metadata.uid
        kubelet_checkpoint.write(node.place, uid, "main", void, cdi_devices=names)
        view = node.cri.view(pod, Allocation(envs=void, cdi_devices=names))
    assert gpus(view) == {node.node.device(6)}


def test_containers_of_a_pod(node: NriNode) -> None:
    """Two containers with a GPU each, and one without."""
    with node.cri.pod("several", "runc") as pod:
        seen = {
            name: node.cri.view(pod, node.assign(pod, uuid(node, index), name), name=name)
            for name, index in (("first", 1), ("second", 2))
        }
        side = node.cri.view(pod, Allocation(), name="side")
    assert gpus(seen["first"]) == {node.node.device(1)}
    assert gpus(seen["second"]) == {node.node.device(2)}
    assert side.gpus() == {}


def test_unknown_device_does_not_start(node: NriNode) -> None:
    """The error that the kubelet shows names the device and those that exist."""
    notes = {f"{PREFIX}/pod": f"{KIND}=77"}
    with node.cri.pod("unknown", "runc", "chosen", notes) as pod:
        said = refusal(node, pod)
    assert "GH1102" in said
    assert f"{KIND}=77" in said
    assert uuid(node, 0) in said or f"{KIND}=0" in said, said


@pytest.mark.parametrize(
    ("notes", "code"),
    [({f"{PREFIX}/pod": "0"}, "GH2711"), ({f"{PREFIX}/main": f"{KIND}=0"}, "GH2712")],
)
def test_invalid_annotation_does_not_start(notes: dict[str, str], code: str, node: NriNode) -> None:
    with node.cri.pod("invalid", "runc", "chosen", notes) as pod:
        assert code in refusal(node, pod)


def refusal(node: NriNode, pod: Pod) -> str:
    """Return the CRI's error of a container that does not start."""
    with pytest.raises(grpc.RpcError) as caught:
        node.sleeping(pod, Allocation())
    return str(caught.value)


def test_doctor_finds_the_plugin(plugin: NriPlugin) -> None:
    """By its process, also in a container."""
    found = daemons.processes(DirectoryTree("/"))
    (own,) = [one for one in found if one["pid"] == plugin.process.pid]
    node = ExaminedNode(DirectoryTree("/"), Readings({node_readings.PROCESSES: lambda: [own]}))
    assert nri_facts.nri_instances(node) == (
        nri_facts.NriInstance(plugin.process.pid, "10", "gpuhook"),
    )
