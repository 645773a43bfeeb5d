# SPDX-License-Identifier: Apache-2.0
"""A claim never gets a GPU that a container has from a device plugin."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import pytest

from gpuhook.dra.claims.plugin_holders import PluginHolders
from gpuhook.errors import GpuhookError
from tests.kubelet.allocated_claims import allocated, named, result
from tests.kubelet.pod_resources import PodResources, pod
from tests.unit.dra.claims.claims_world import World, gpu

RESOURCE = "nvidia.com/gpu"


@pytest.fixture
def root() -> Iterator[Path]:
    """Return the root directory of a kubelet, with a path that is short enough for a socket."""
    with TemporaryDirectory(prefix="gh-") as place:
        (Path(place) / "pod-resources").mkdir()
        (Path(place) / "device-plugins").mkdir()
        yield Path(place)


@pytest.fixture
def world(tmp_path: Path, root: Path) -> Iterator[World]:
    """Return a driver that queries the kubelet from an event loop in another thread."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()

    async def holders() -> PluginHolders:
        return PluginHolders(str(root), str(root / "pod-resources/kubelet.sock"))

    world = World(tmp_path)
    made = asyncio.run_coroutine_threadsafe(holders(), loop).result()
    world.require_free = made.require_free
    world.restart()
    yield world
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def kubelet(root: Path) -> Iterator[PodResources]:
    with PodResources(root / "pod-resources/kubelet.sock") as serving:
        yield serving


def write_checkpoint(root: Path, text: str) -> None:
    """Write the checkpoint of the kubelet's device manager."""
    path = root / "device-plugins/kubelet_internal_checkpoint"
    path.write_text(text, encoding="latin-1")


def claim(world: World, name: str = "mine", device: str = "gpu-0", **more: Any) -> None:
    """Add a claim of a device, and prepare it."""
    world.server.add(allocated(named(name), result(device, **more)))
    world.prepare(named(name))


def refusal(prepare: Callable[[], object]) -> GpuhookError:
    with pytest.raises(GpuhookError) as caught:
        prepare()
    return caught.value


def test_gpu_of_a_container_is_refused_with_pod_and_container(
    world: World, kubelet: PodResources
) -> None:
    kubelet.pods = [pod("ml", "train-0", "main", RESOURCE, ["GPU-0"])]
    error = refusal(lambda: claim(world))
    assert error.code == "GH2640"
    assert error.message == (
        "claim default/mine cannot have gpu-0: container main of pod ml/train-0 has it from the "
        "device plugin (GPU-0)"
    )
    assert world.prepared() == []
    claim(world, "other", "gpu-1")
    kubelet.pods = []  # the pod has ended, and the kubelet repeats the call
    world.prepare(named("mine"))
    assert world.prepared() == ["mine", "other"]


@pytest.mark.parametrize("unit", ["GPU-0::3", "GPU-0-slice-3"])
def test_replicas_and_whole_gpus_exclude_each_other(
    world: World, kubelet: PodResources, unit: str
) -> None:
    kubelet.pods = [pod("ml", "train-0", "main", RESOURCE, [unit])]
    assert refusal(lambda: claim(world)).code == "GH2640"


@pytest.mark.parametrize(
    ("unit", "memory", "is_allowed"),
    [
        ("GPU-0::3", "0", True),  # time-sliced with time-sliced, without memory limits
        ("GPU-0::3", "4Gi", False),  # the memory of the replica is not accounted
        ("GPU-0::3", None, False),  # an MPS server, whose clients have the GPU alone
        ("GPU-0", "0", False),
    ],
)
def test_shares_that_promise_no_memory_can_meet(
    world: World, kubelet: PodResources, unit: str, memory: str | None, is_allowed: bool
) -> None:
    world.use(gpu(0, is_shared=True))
    kubelet.pods = [pod("ml", "train-0", "main", RESOURCE, [unit])]
    consumed = {} if memory is None else {"consumedCapacity": {"memory": memory}}
    share: dict[str, Any] = {"shareID": "11111111-1111-1111-1111-111111111111", **consumed}
    if is_allowed:
        claim(world, **share)
    else:
        assert refusal(lambda: claim(world, **share)).code == "GH2640"


def test_instance_and_its_gpu_exclude_each_other(world: World, kubelet: PodResources) -> None:
    whole = gpu(0)
    parts = gpu(0, "MIG-1", name="gpu-0-mig-1g.5gb-19-0")
    object.__setattr__(parts.device, "gpu", "GPU-0")
    object.__setattr__(parts.device, "instance", (7, 0))
    world.use(whole, parts)
    kubelet.pods = [pod("ml", "train-0", "main", "nvidia.com/mig-1g.5gb", ["MIG-1"])]
    assert refusal(lambda: claim(world)).code == "GH2640"
    kubelet.pods = [pod("ml", "train-0", "main", RESOURCE, ["GPU-0"])]
    assert refusal(lambda: claim(world, "part", parts.name)).code == "GH2640"


def test_admin_access_and_devices_of_others_are_no_conflict(
    world: World, kubelet: PodResources
) -> None:
    kubelet.pods = [
        pod("ml", "train-0", "main", RESOURCE, ["GPU-0"]),
        pod("ml", "net-0", "main", "vendor.com/nic", ["eth0"]),
    ]
    claim(world, "monitor", adminAccess=True)
    claim(world, "other", "gpu-1")


def test_checkpoint_of_the_kubelet_replaces_an_absent_api(world: World, root: Path) -> None:
    claim(world, "before", "gpu-2")  # a kubelet that has never had a device plugin has no file
    ids = {"PodUID": "uid-1", "ContainerName": "main", "DeviceIDs": {"-1": ["GPU-0"]}}
    data = {"PodDeviceEntries": [ids], "RegisteredDevices": {}}
    write_checkpoint(root, json.dumps({"Data": data, "Checksum": 1}))
    error = refusal(lambda: claim(world))
    assert "container main of the pod with UID uid-1" in error.message
    claim(world, "other", "gpu-1")


@pytest.mark.parametrize("text", ["{", '{"Data": 1}', "\xff"])
def test_nothing_is_prepared_if_neither_can_be_read(world: World, root: Path, text: str) -> None:
    write_checkpoint(root, text)
    error = refusal(lambda: claim(world))
    assert error.code == "GH2641"
    assert "No such file or directory" in error.message
    assert world.prepared() == []


def test_claims_that_wait_share_a_query(world: World, kubelet: PodResources) -> None:
    """The kubelet refuses callers that query it often."""
    world.use(*map(gpu, range(32)))
    names = [named(f"claim-{number}") for number in range(32)]
    for number, name in enumerate(names):
        world.server.add(allocated(name, result(f"gpu-{number}")))
    with ThreadPoolExecutor(32) as threads:
        list(threads.map(world.prepare, names))
    assert len(world.prepared()) == 32
    assert kubelet.calls < 32


def test_query_begins_after_the_intent_is_written(world: World, kubelet: PodResources) -> None:
    """gpuhook's own plugin reads the intents: of two at the same time, one is refused."""
    seen: list[list[str]] = []
    require_free = world.require_free

    def observed(*arguments: Any) -> None:
        seen.append(world.prepared())
        require_free(*arguments)

    world.require_free = observed
    world.restart()
    claim(world)
    assert seen == [["mine"]]
