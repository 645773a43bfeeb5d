# SPDX-License-Identifier: Apache-2.0
"""One resource on its socket: lists, allocations, and what becomes of faults."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from gpuhook.device_plugin.allocate.container_allocation import (
    AllocatedMount,
    Allocation,
    DeviceSpec,
)
from gpuhook.device_plugin.api import deviceplugin_pb2 as api
from gpuhook.device_plugin.kubelet import resource_server
from gpuhook.device_plugin.offer.offered_devices import Resource, Unit
from gpuhook.errors import fault
from tests.kubelet.endpoint import Endpoint
from tests.kubelet.plugin import Plugin, device, resource
from tests.waiting import Changes

OPTIONS = api.DevicePluginOptions()
Both = tuple[Plugin, Endpoint]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    """Return a plugin without a kubelet that offers 2 GPUs with 2 units each, and a connection."""
    with Plugin(tmp_path, kubelet="", pre_start=True) as plugin:
        plugin.offer(resource())
        endpoint = Endpoint(tmp_path / "nvidia-gpu.sock", OPTIONS, Changes())
        yield plugin, endpoint
        endpoint.close()


def healths(endpoint: Endpoint) -> str:
    """Return the first letters of the healths in the last list."""
    return "".join(one.health[0] for one in endpoint.devices.values())


def lists(endpoint: Endpoint, count: int) -> list[list[api.Device]]:
    """Return the lists when that many have come."""
    stream = endpoint.stream
    stream._changes.wait_for(lambda: len(stream.lists) >= count, f"list {count}")
    return stream.lists


def test_the_list_comes_at_once_and_in_order(both: Both) -> None:
    """The first list has every unit, healthy, in the resource's order, without a topology."""
    _, endpoint = both
    (first,) = lists(endpoint, 1)
    assert [(one.ID, one.health) for one in first] == [
        (f"GPU-{gpu}::{n}", "Healthy") for gpu in (0, 1) for n in (0, 1)
    ]
    assert not any(one.HasField("topology") for one in first)


def test_topology_where_it_is_known() -> None:
    """A known NUMA node is listed; the kernel's -1 means that there is none."""
    nodes = {"GPU-a": 0, "GPU-b": 1, "GPU-c": None, "GPU-d": -1}
    units = tuple(Unit(name, device(name, node)) for name, node in nodes.items())
    listed = resource_server.listing(Resource("nvidia.com/gpu", units), {}).devices
    assert [[node.ID for node in one.topology.nodes] for one in listed] == [[0], [1], [], []]
    assert [one.HasField("topology") for one in listed] == [True, True, False, False]


def test_all_units_of_a_device_fall_ill_in_one_message(both: Both) -> None:
    """One device unhealthy is one more list, with all of its units in it; so is its recovery."""
    plugin, endpoint = both
    lists(endpoint, 1)
    plugin.offer(resource(), unhealthy={"GPU-0": "XID 79"})
    assert len(lists(endpoint, 2)) == 2
    assert healths(endpoint) == "UUHH"
    plugin.offer(resource())
    assert len(lists(endpoint, 3)) == 3
    assert healths(endpoint) == "HHHH"


def test_no_message_without_a_change(both: Both) -> None:
    """The same list again, or another reason for the same state, is not sent."""
    plugin, endpoint = both
    plugin.offer(resource(), unhealthy={"GPU-0": "XID 79"})
    for reason in ("XID 79", "lost", "off the bus"):
        plugin.offer(resource(), unhealthy={"GPU-0": reason, "GPU-other": "not ours"})
    endpoint.stream._changes.wait_for(lambda: healths(endpoint) == "UUHH", "the list")
    before = plugin.observed.count("list_sent")
    stream = endpoint.watch()
    plugin.observed.wait_for("list_sent", before + 1)
    assert len(endpoint.stream.lists) <= 2
    stream.cancel()


def test_changes_faster_than_a_stream_are_one_message(both: Both) -> None:
    """Of 200 changes without a pause, a stream gets the last state and few of the others."""
    plugin, endpoint = both
    lists(endpoint, 1)

    async def flap() -> None:
        server = plugin.serving._offerings["nvidia.com/gpu"].server
        for turn in range(200):
            server.publish(resource(), {"GPU-1": "flaps"} if turn % 2 == 0 else {})
        server.publish(resource(), {"GPU-0": "stays"})

    plugin.thread.run(flap())
    lists(endpoint, 2)
    assert healths(endpoint) == "UUHH"
    assert len(endpoint.stream.lists) == 2


def test_a_change_that_was_taken_back_is_no_message(both: Both) -> None:
    """A list that is unchanged when a stream reads it is not sent."""
    plugin, endpoint = both
    lists(endpoint, 1)

    async def blink() -> None:
        server = plugin.serving._offerings["nvidia.com/gpu"].server
        server.publish(resource(), {"GPU-1": "blinks"})
        server.publish(resource(), {})

    plugin.thread.run(blink())
    plugin.offer(resource(), unhealthy={"GPU-0": "XID 79"})
    lists(endpoint, 2)
    assert healths(endpoint) == "UUHH"


def test_units_that_come_and_go(both: Both) -> None:
    """Another set of units is one more list."""
    plugin, endpoint = both
    lists(endpoint, 1)
    plugin.offer(resource(count=1, replicas=4))
    assert [one.ID for one in lists(endpoint, 2)[1]] == [f"GPU-0::{n}" for n in range(4)]


def test_options(both: Both) -> None:
    """The options say that both optional calls are wanted."""
    _, endpoint = both
    assert endpoint.get_options() == api.DevicePluginOptions(
        pre_start_required=True, get_preferred_allocation_available=True
    )


def test_allocations_become_messages() -> None:
    """Everything that a container is handed is in the message, and nothing else."""
    allocation = Allocation(
        envs={"NVIDIA_VISIBLE_DEVICES": "GPU-0"},
        mounts=(AllocatedMount("/c", "/h"), AllocatedMount("/shm", "/h/shm", read_only=False)),
        devices=(DeviceSpec("/dev/nvidia0", "/root/dev/nvidia0"),),
        annotations={"cdi.k8s.io/gpuhook": "nvidia.com/gpu=0"},
        cdi_devices=("nvidia.com/gpu=0",),
    )
    full, empty = resource_server.allocate_response([allocation, Allocation()]).container_responses
    assert dict(full.envs) == {"NVIDIA_VISIBLE_DEVICES": "GPU-0"}
    assert [(m.container_path, m.host_path, m.read_only) for m in full.mounts] == [
        ("/c", "/h", True),
        ("/shm", "/h/shm", False),
    ]
    assert [(d.container_path, d.host_path, d.permissions) for d in full.devices] == [
        ("/dev/nvidia0", "/root/dev/nvidia0", "rw")
    ]
    assert dict(full.annotations) == {"cdi.k8s.io/gpuhook": "nvidia.com/gpu=0"}
    assert [one.name for one in full.cdi_devices] == ["nvidia.com/gpu=0"]
    assert empty == api.ContainerAllocateResponse()


def test_each_container_has_its_answer(both: Both) -> None:
    """Containers of one call are answered in their order, and observed."""
    plugin, endpoint = both
    answer = endpoint.allocate(["GPU-0::0", "GPU-1::0"], [], ["GPU-0::1"])
    assert [one.envs["GPUS"] for one in answer.container_responses] == [
        "GPU-0::0,GPU-1::0",
        "",
        "GPU-0::1",
    ]
    assert ("allocated", [["GPU-0::0", "GPU-1::0"], [], ["GPU-0::1"]]) in plugin.observed.events


def test_the_preferred_units(both: Both) -> None:
    """What is available, what must be in, and the size reach who decides."""
    _, endpoint = both
    assert endpoint.preferred(["a", "b", "c"], ["c"], 2) == ["c", "c"]
    assert endpoint.preferred(["a", "b", "c"], [], 2) == ["c", "b"]


def test_a_start_is_looked_at(both: Both) -> None:
    """PreStartContainer asks, and tells."""
    plugin, endpoint = both
    endpoint.pre_start(["GPU-0::0"])
    assert ("pre_started", ["GPU-0::0"]) in plugin.observed.events
    plugin.answers.error = fault("GH1823", socket="s", resource="r", reason="none")
    with pytest.raises(grpc.RpcError):
        endpoint.pre_start(["GPU-0::0"])


def test_a_driver_that_hangs_keeps_one_start_waiting_only(both: Both) -> None:
    """PreStartContainer queries the driver; other calls are answered meanwhile."""
    plugin, endpoint = both
    plugin.answers.hangs = threading.Event()
    start = threading.Thread(target=endpoint.pre_start, args=(["GPU-0::0"],))
    start.start()
    try:
        assert plugin.answers.waits.wait(60)
        assert endpoint.preferred(["a"], [], 1) == ["a"]
        assert plugin.observed.count("pre_started") == 0
    finally:
        plugin.answers.hangs.set()
        start.join()
    assert plugin.observed.count("pre_started") == 1


def test_a_start_that_nobody_wanted_looked_at(tmp_path: Path) -> None:
    """Without the option the kubelet need not call; a call succeeds anyway."""
    with Plugin(tmp_path, kubelet="") as plugin:
        plugin.offer(resource())
        plugin.answers.error = ZeroDivisionError()
        endpoint = Endpoint(tmp_path / "nvidia-gpu.sock", OPTIONS, Changes())
        assert not endpoint.get_options().pre_start_required
        endpoint.pre_start(["GPU-0::0"])
        endpoint.close()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("GH1003", grpc.StatusCode.INVALID_ARGUMENT),
        ("GH1204", grpc.StatusCode.FAILED_PRECONDITION),
    ],
)
def test_a_fault_is_a_status_with_a_sentence(
    both: Both, code: str, status: grpc.StatusCode
) -> None:
    """Wrong requests and failed ones have different statuses, both with code and hint."""
    plugin, endpoint = both
    facts = {"name": "GPU-x::y"} if code == "GH1003" else {"path": "/lib", "reason": "none"}
    plugin.answers.error = error = fault(code, **facts)
    for call in (
        lambda: endpoint.allocate(["GPU-x::y"]),
        lambda: endpoint.preferred(["GPU-x::y"], [], 1),
        lambda: endpoint.pre_start(["GPU-x::y"]),
    ):
        with pytest.raises(grpc.RpcError) as raised:
            call()
        assert raised.value.code() is status
        assert raised.value.details() == f"{code}: {error.message} ({error.hint})"
    refused = [what for name, what in plugin.observed.events if name == "refused"]
    assert refused == ["Allocate", "GetPreferredAllocation", "PreStartContainer"]


def test_a_fault_of_ours_ends_one_call_only(both: Both) -> None:
    """Any other error is INTERNAL and reported to the observer, and the next call succeeds."""
    plugin, endpoint = both
    plugin.answers.error = KeyError("\udcff odd\n" + "x" * 10_000)
    with pytest.raises(grpc.RpcError) as raised:
        endpoint.allocate(["GPU-0::0"])
    assert raised.value.code() is grpc.StatusCode.INTERNAL
    assert "\n" not in str(raised.value.details())
    assert plugin.observed.count("broken") == 1
    plugin.answers.error = None
    assert endpoint.allocate(["GPU-0::0"]).container_responses


def test_a_preferred_answer_for_no_container(both: Both) -> None:
    """A call without containers has an answer without any."""
    _, endpoint = both
    assert not endpoint.allocate().container_responses


def test_replacing_what_answers_for(both: Both) -> None:
    """Who decides is given the resource as it is now."""
    plugin, endpoint = both
    seen: list[Resource] = []

    def remember(resource: Resource, requests: list[list[str]]) -> list[Allocation]:
        seen.append(resource)
        return [Allocation() for _ in requests]

    plugin.answers.allocate = remember  # type: ignore[method-assign]
    changed = dataclasses.replace(resource(), refuses_more_than_one=True)
    plugin.offer(changed)
    endpoint.allocate(["GPU-0::0"])
    assert seen == [changed]
