# SPDX-License-Identifier: Apache-2.0
"""From the device plugin to a container of a real engine, with a simulated kubelet between them.

Register, ListAndWatch, GetPreferredAllocation and Allocate use the kubelet's sockets; a pod and its
container are made over the CRI with exactly the answer of Allocate.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contract import test_mig
from tests.contract.cri import Cri, Pod, cri_of
from tests.contract.installation import ALL_CONTROL, CONTROL, Installation, installation
from tests.contract.kubelet_side import allocation_of
from tests.contract.views import View, questions
from tests.kubelet.kubelet import Allocated, Kubelet
from tests.kubelet.process import TIME_SLICING, plugin

GPU, SLICE = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"
MIXED = "version: v1\nflags: {migStrategy: mixed}\n"


@dataclass(frozen=True)
class Way:
    """A way to pass the GPU: the plugin's variables, and the pod's runtimeClass."""

    env: dict[str, str]
    handler: str = "nvidia"
    control: frozenset[str] = frozenset(CONTROL)


ALL = frozenset(ALL_CONTROL)
WAYS = {
    "envvar": Way({}),
    "envvar by index": Way({"DEVICE_ID_STRATEGY": "index"}),
    "envvar with device specs": Way({"PASS_DEVICE_SPECS": "true"}, control=ALL),
    "volume-mounts": Way({"DEVICE_LIST_STRATEGY": "volume-mounts"}),
    "cdi-annotations": Way({"DEVICE_LIST_STRATEGY": "cdi-annotations"}),
    "several": Way({"DEVICE_LIST_STRATEGY": "envvar,volume-mounts,cdi-annotations"}),
    "host-files": Way({"DEVICE_LIST_STRATEGY": "host-files"}, "runc", ALL),
}


@dataclass(frozen=True)
class Node:
    """A node with gpuhook, an engine, and a kubelet without a plugin."""

    installation: Installation
    kubelet: Kubelet
    engine: Cri

    @contextmanager
    def plugin_running(self, place: Path, text: str, way: Way) -> Iterator[None]:
        """Run the plugin with the host's paths, since it runs in no container here."""
        env = {
            "NVIDIA_DRIVER_ROOT": self.installation.node.driver_root,
            "GPUHOOK_CDI_DIRECTORY": str(self.installation.specs),
            "NVIDIA_CDI_HOOK_PATH": str(self.installation.bindir / "gpuhook-hook"),
            **way.env,
        }
        with plugin(place, self.installation.node, self.kubelet, text, env):
            yield

    def view_of(self, pod: Pod, allocated: Allocated, *args: str) -> View:
        """Return the view of the pod's container; then restart it, and let it run.

        The kubelet uses the same answer for a restarted container.
        """
        allocation = allocation_of(allocated.response)
        view = self.engine.view(pod, allocation, *args)
        self.engine.container(pod, ["/bin/sleep", "600"], allocation, name="again")
        return view

    def holders(self) -> dict[str, tuple[list[str], list[str]]]:
        """Return the GPUs and replicas of each pod, as `gpuhook ps` prints them."""
        return {
            f"{one['namespace']}/{one['pod']}": (one["gpus"], one["replicas"])
            for one in self.installation.holders()
        }


@contextmanager
def node_of(made: Installation, place: Path) -> Iterator[Node]:
    """Yield a node whose handler `nvidia` is gpuhook-runtime."""
    with Kubelet(place / "kubelet") as kubelet, cri_of(made, place) as engine:
        yield Node(made, kubelet, engine)


@pytest.fixture(scope="module")
def node(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Yield a node with eight GPUs."""
    place = tmp_path_factory.mktemp("chain")
    made = node8.apart(place / "gpuhook", request={"acceptVolumeMounts": True})
    with node_of(made, place) as made_node:
        yield made_node


@pytest.fixture(scope="module")
def mig(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Yield a node with MIG instances."""
    place = tmp_path_factory.mktemp("mig-chain")
    made = installation(place, "a100-mig", node8.bindir)
    with node_of(made, place) as made_node:
        yield made_node


@pytest.mark.parametrize("name", WAYS)
def test_two_pods_share_a_gpu(name: str, node: Node, tmp_path: Path) -> None:
    """Both containers have only that GPU, and `ps` prints the replica of each."""
    way = WAYS[name]
    packed = Way({**way.env, "SHARED_DEVICES_ALLOCATION_POLICY": "packed"}, way.handler)
    with ExitStack() as stack:
        stack.enter_context(node.plugin_running(tmp_path / "plugin", TIME_SLICING, packed))
        node.kubelet.wait_for_devices(GPU, 32)
        allocations = {name: node.kubelet.allocate(GPU, 1) for name in ("gpu-test-1", "gpu-test-2")}
        (uuid,) = {unit.partition("::")[0] for one in allocations.values() for unit in one.ids}
        gpu = next(gpu for gpu in node.installation.node.node.gpus if gpu.uuid == uuid)
        every = [node.installation.number(index) for index in range(8)]
        for pod_name, allocated in allocations.items():
            pod = stack.enter_context(node.engine.pod(pod_name, way.handler))
            view = node.view_of(pod, allocated, *questions(tries=every))
            assert set(view.gpus()) == {*way.control, f"/dev/nvidia{gpu.minor}"}
            assert all(entry.allowed for entry in view.gpus().values())
            refused = {number for number, error in view.tries.items() if error == "EPERM"}
            assert refused == {*every} - {node.installation.number(gpu.index)}
            assert any("libcuda.so" in target for target in view.mounts)
            assert view.values("GPUHOOK_REPLICAS") == list(allocated.ids)
        expected = {f"default/{name}": ([uuid], list(one.ids)) for name, one in allocations.items()}
        assert node.holders() == (expected if way.handler == "nvidia" else {})
    for allocated in allocations.values():
        node.kubelet.release(allocated)
    assert node.holders() == {}


@pytest.mark.parametrize("name", ["envvar", "cdi-annotations", "host-files"])
def test_pod_has_its_mig_instance(name: str, mig: Node, tmp_path: Path) -> None:
    """The container has the capability nodes of its instance, and of no other."""
    way = WAYS[name]
    caps = {
        str(one.uuid): (one.gpu_instance_minor, one.compute_instance_minor)
        for gpu in mig.installation.node.node.gpus
        for one in gpu.instances
    }
    every = {f"{test_mig.CAPS}:{minor}" for minors in caps.values() for minor in minors}
    with (
        mig.plugin_running(tmp_path / "plugin", MIXED, way),
        mig.engine.pod("slice", way.handler) as pod,
    ):
        mig.kubelet.wait_for(lambda: mig.kubelet.allocatable(SLICE) > 1, "instances")
        allocated = mig.kubelet.allocate(SLICE, 1)
        (uuid,) = allocated.ids
        view = mig.view_of(pod, allocated, *questions(tries=sorted(every)))
        own = {f"{test_mig.CAP}{minor}" for minor in caps[uuid]}
        assert {path for path in view.gpus() if "-cap" in path} == own
        opened = {number for number, error in view.tries.items() if error != "EPERM"}
        assert opened == {f"{test_mig.CAPS}:{minor}" for minor in caps[uuid]}
        assert mig.holders() == ({"default/slice": ([uuid], [])} if way.handler == "nvidia" else {})
    mig.kubelet.release(allocated)


def test_pod_annotation_grants_no_gpu(node: Node, tmp_path: Path) -> None:
    """The engine passes on the kubelet's annotations of a container, not those of a pod."""
    way = WAYS["cdi-annotations"]
    with node.plugin_running(tmp_path / "plugin", TIME_SLICING, way):
        node.kubelet.wait_for_devices(GPU, 32)
        allocated = node.kubelet.allocate(GPU, 1)
        node.kubelet.release(allocated)
        own = dict(allocated.response.annotations)
        assert own
        with node.engine.pod("greedy", annotations=own) as pod:
            nothing = Allocated(GPU, (), type(allocated.response)())
            assert node.view_of(pod, nothing).gpus() == {}
            assert node.holders() == {}
