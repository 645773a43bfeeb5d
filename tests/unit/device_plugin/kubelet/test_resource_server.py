# SPDX-License-Identifier: Apache-2.0
"""ResourceServer on its socket: lists, allocations, and the status of faults."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
PluginAndEndpoint = tuple[Plugin, Endpoint]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[PluginAndEndpoint]:
    """Return a plugin without a kubelet that offers 2 GPUs with 2 units each, and a connection."""
    with Plugin(tmp_path, kubelet="", pre_start=True) as plugin:
        plugin.offer(resource())
        endpoint = Endpoint(tmp_path / "nvidia-gpu.sock", OPTIONS, Changes())
        yield plugin, endpoint
        endpoint.close()


def healths(endpoint: Endpoint) -> str:
    """Return the first letters of the health values in the last list."""
    return "".join(one.health[0] for one in endpoint.devices.values())


def lists(endpoint: Endpoint, count: int) -> list[list[api.Device]]:
    """Wait for `count` lists, and return them."""
    stream = endpoint.stream
    stream._changes.wait_for(lambda: len(stream.lists) >= count, f"list {count}")
    return stream.lists


def test_first_list_has_all_units_in_order(served: PluginAndEndpoint) -> None:
    """All units are healthy and have no topology."""
    _, endpoint = served
    (first,) = lists(endpoint, 1)
    assert [(one.ID, one.health) for one in first] == [
        (f"GPU-{gpu}::{n}", "Healthy") for gpu in (0, 1) for n in (0, 1)
    ]
    assert not any(one.HasField("topology") for one in first)


def test_known_numa_node_is_listed() -> None:
    """The kernel's -1 means that there is no NUMA node."""
    nodes = {"GPU-a": 0, "GPU-b": 1, "GPU-c": None, "GPU-d": -1}
    units = tuple(Unit(name, device(name, node)) for name, node in nodes.items())
    listed = resource_server.listing(Resource("nvidia.com/gpu", units), {}).devices
    assert [[node.ID for node in one.topology.nodes] for one in listed] == [[0], [1], [], []]
    assert [one.HasField("topology") for one in listed] == [True, True, False, False]


def test_unhealthy_device_changes_all_its_units_in_one_list(served: PluginAndEndpoint) -> None:
    """Its recovery is one list, too."""
    plugin, endpoint = served
    lists(endpoint, 1)
    plugin.offer(resource(), unhealthy={"GPU-0": "XID 79"})
    assert len(lists(endpoint, 2)) == 2
    assert healths(endpoint) == "UUHH"
    plugin.offer(resource())
    assert len(lists(endpoint, 3)) == 3
    assert healths(endpoint) == "HHHH"


def test_unchanged_list_is_not_sent(served: PluginAndEndpoint) -> None:
    """A new reason for the same state is no change."""
    plugin, endpoint = served
    plugin.offer(resource(), unhealthy={"GPU-0": "XID 79"})
    for reason in ("XID 79", "lost", "off the bus"):
        plugin.offer(resource(), unhealthy={"GPU-0": reason, "GPU-other": "not ours"})
    endpoint.stream._changes.wait_for(lambda: healths(endpoint) == "UUHH", "the list")
    before = plugin.observed.count("list_sent")
    stream = endpoint.watch()
    plugin.observed.wait_for("list_sent", before + 1)
    assert len(endpoint.stream.lists) <= 2
    stream.cancel()


def test_fast_changes_are_merged_into_one_list(served: PluginAndEndpoint) -> None:
    """A stream gets the last of 200 states."""
    plugin, endpoint = served
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


def test_reverted_change_is_not_sent(served: PluginAndEndpoint) -> None:
    plugin, endpoint = served
    lists(endpoint, 1)

    async def blink() -> None:
        server = plugin.serving._offerings["nvidia.com/gpu"].server
        server.publish(resource(), {"GPU-1": "blinks"})
        server.publish(resource(), {})

    plugin.thread.run(blink())
    plugin.offer(resource(), unhealthy={"GPU-0": "XID 79"})
    lists(endpoint, 2)
    assert healths(endpoint) == "UUHH"


def test_changed_units_are_sent_as_a_new_list(served: PluginAndEndpoint) -> None:
    plugin, endpoint = served
    lists(endpoint, 1)
    plugin.offer(resource(count=1, replicas=4))
    assert [one.ID for one in lists(endpoint, 2)[1]] == [f"GPU-0::{n}" for n in range(4)]


def test_options_require_pre_start_and_preferred_allocation(served: PluginAndEndpoint) -> None:
    _, endpoint = served
    assert endpoint.get_options() == api.DevicePluginOptions(
        pre_start_required=True, get_preferred_allocation_available=True
    )


def test_allocation_is_converted_to_a_response() -> None:
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


def test_containers_are_answered_in_order(served: PluginAndEndpoint) -> None:
    """The call is observed."""
    plugin, endpoint = served
    answer = endpoint.allocate(["GPU-0::0", "GPU-1::0"], [], ["GPU-0::1"])
    assert [one.envs["GPUS"] for one in answer.container_responses] == [
        "GPU-0::0,GPU-1::0",
        "",
        "GPU-0::1",
    ]
    assert ("allocated", [["GPU-0::0", "GPU-1::0"], [], ["GPU-0::1"]]) in plugin.observed.events


def test_preferred_allocation_passes_all_arguments(served: PluginAndEndpoint) -> None:
    _, endpoint = served
    assert endpoint.preferred(["a", "b", "c"], ["c"], 2) == ["c", "c"]
    assert endpoint.preferred(["a", "b", "c"], [], 2) == ["c", "b"]


def test_pre_start_calls_the_check_and_is_observed(served: PluginAndEndpoint) -> None:
    plugin, endpoint = served
    endpoint.pre_start(["GPU-0::0"])
    assert ("pre_started", ["GPU-0::0"]) in plugin.observed.events
    plugin.answers.error = fault("GH1823", socket="s", resource="r", reason="none")
    with pytest.raises(grpc.RpcError):
        endpoint.pre_start(["GPU-0::0"])


def test_hanging_driver_blocks_only_pre_start(served: PluginAndEndpoint) -> None:
    """PreStartContainer queries the driver; other calls are answered meanwhile."""
    plugin, endpoint = served
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


def test_check_during_which_the_offer_changed_is_done_again(
    served: PluginAndEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU may have become unhealthy while its driver was silent."""
    plugin, endpoint = served
    waits, ends = threading.Event(), threading.Event()
    calls: list[list[str]] = []

    def pre_start(resource: Resource, ids: list[str]) -> None:
        calls.append(ids)
        if len(calls) > 1:
            raise fault("GH1823", socket="s", resource="r", reason="none")
        waits.set()
        ends.wait(20)

    monkeypatch.setattr(plugin.answers, "pre_start", pre_start)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(endpoint.pre_start, ["GPU-0::0"])
        assert waits.wait(60)
        plugin.offer(resource(), unhealthy={"GPU-0": "xid 79"})
        with pytest.raises(grpc.RpcError):  # it does not wait for the first one
            endpoint.pre_start(["GPU-0::0"])
        ends.set()
        with pytest.raises(grpc.RpcError):
            first.result()
    assert plugin.observed.count("pre_started") == 0


def test_pre_start_without_the_option_succeeds(tmp_path: Path) -> None:
    """The kubelet need not call it."""
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
def test_fault_is_a_grpc_status_with_code_and_hint(
    served: PluginAndEndpoint, code: str, status: grpc.StatusCode
) -> None:
    """Invalid requests and failed preconditions have different statuses."""
    plugin, endpoint = served
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


def test_unexpected_error_is_internal_and_the_next_call_succeeds(served: PluginAndEndpoint) -> None:
    """The error is reported to the observer."""
    plugin, endpoint = served
    plugin.answers.error = KeyError("\udcff odd\n" + "x" * 10_000)
    with pytest.raises(grpc.RpcError) as raised:
        endpoint.allocate(["GPU-0::0"])
    assert raised.value.code() is grpc.StatusCode.INTERNAL
    assert "\n" not in str(raised.value.details())
    assert plugin.observed.count("broken") == 1
    plugin.answers.error = None
    assert endpoint.allocate(["GPU-0::0"]).container_responses


def test_allocate_without_containers_has_an_empty_response(served: PluginAndEndpoint) -> None:
    _, endpoint = served
    assert not endpoint.allocate().container_responses


def test_allocate_uses_the_current_resource(served: PluginAndEndpoint) -> None:
    plugin, endpoint = served
    seen: list[Resource] = []

    def remember(resource: Resource, requests: list[list[str]]) -> list[Allocation]:
        seen.append(resource)
        return [Allocation() for _ in requests]

    plugin.answers.allocate = remember  # type: ignore[method-assign]
    changed = dataclasses.replace(resource(), refuses_more_than_one=True)
    plugin.offer(changed)
    endpoint.allocate(["GPU-0::0"])
    assert seen == [changed]
