# SPDX-License-Identifier: Apache-2.0
"""Restarts and failures of the kubelet and its directory: no lost device, no storm, no leak."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from functools import partial

import grpc
import pytest

from gpuhook.device_plugin.api import deviceplugin_pb2 as api
from gpuhook.device_plugin.api import services
from gpuhook.device_plugin.kubelet import resource_offer
from tests.depth import depth
from tests.kubelet.endpoint import Endpoint, Stream
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.plugin import Plugin, resource
from tests.waiting import Changes, eventually

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"
RESTARTS = depth(30, 200)


@pytest.fixture
def plugin(kubelet: Kubelet) -> Iterator[Plugin]:
    with Plugin(kubelet.directory) as made:
        yield made


def fds() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def wait_for_both_resources(kubelet: Kubelet) -> None:
    """Wait until the kubelet has all devices of both resources."""
    kubelet.wait_for_devices(GPU, healthy=4)
    kubelet.wait_for_devices(MIG, healthy=1)


def test_kubelet_restarts_leave_all_devices_registered_once(
    kubelet: Kubelet, plugin: Plugin
) -> None:
    """Tasks, descriptors and lists do not accumulate."""
    plugin.offer(resource(), resource(1, 1, MIG))
    wait_for_both_resources(kubelet)
    tasks = plugin.thread.tasks()
    opened = []
    for turn in range(RESTARTS):
        kubelet.registrations.clear()
        kubelet.restart()
        wait_for_both_resources(kubelet)
        if turn % 10 == 9:
            opened.append(fds())
    assert sorted(one.resource for one in kubelet.registrations) == [GPU, MIG]
    assert set(os.listdir(kubelet.directory)) == {
        "kubelet.sock",
        "nvidia-gpu.sock",
        "nvidia-mig-1g.5gb.sock",
    }
    # gRPC closes connections in its threads: the number varies, and does not grow per restart.
    assert opened[-1] <= opened[0] + 10
    eventually(lambda: plugin.thread.tasks() <= tasks, "the tasks' ends")
    # At most one list per stream.
    assert plugin.observed.count("list_sent") <= 2 * (RESTARTS + 1)
    assert kubelet.allocate(GPU, 4).ids
    assert kubelet.allocate(MIG, 1).ids


def test_killed_kubelet_is_retried_less_and_less_often(kubelet: Kubelet, plugin: Plugin) -> None:
    plugin.offer(resource())
    for _ in range(5):
        kubelet.wait_for_devices(GPU, healthy=4)
        kubelet.kill()
        kubelet.start()
    kubelet.wait_for_devices(GPU, healthy=4)
    assert plugin.observed.count("registration_failed") < 50


def test_removed_socket_is_created_and_registered_again(kubelet: Kubelet, plugin: Plugin) -> None:
    plugin.offer(resource(), resource(1, 1, MIG))
    wait_for_both_resources(kubelet)
    plugin.observed.wait_for("registered", 2)
    for turn in range(20):
        (kubelet.directory / "nvidia-gpu.sock").unlink()
        plugin.observed.wait_for("registered", turn + 3)
        kubelet.wait_for_devices(GPU, healthy=4)
    assert [one.resource for one in kubelet.registrations].count(MIG) == 1
    assert plugin.observed.open <= 2
    assert kubelet.allocate(GPU, 1).ids


def test_repeatedly_removed_socket_causes_no_busy_loop(
    kubelet: Kubelet, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most removals find no socket."""
    monkeypatch.setattr(resource_offer, "_MIN_SOCKET_AGE", 0.2)
    plugin.offer(resource())
    path = kubelet.directory / "nvidia-gpu.sock"
    found: list[bool] = []
    while sum(found) < 5:
        found.append(path.exists())
        path.unlink(missing_ok=True)
        time.sleep(0.001)
    assert len(found) > 2 * sum(found)
    kubelet.wait_for_devices(GPU, healthy=4)


def test_removed_plugin_directory_is_used_again(kubelet: Kubelet, plugin: Plugin) -> None:
    """Parent directories are removed, too."""
    plugin.offer(resource())
    for turn in range(10):
        kubelet.wait_for_devices(GPU, healthy=4)
        kubelet.stop()
        if turn % 2:
            kubelet.remove_directory()
        else:
            kubelet.directory.rename(kubelet.directory.with_name(f"aside{turn}"))
        kubelet.start()
    kubelet.wait_for_devices(GPU, healthy=4)
    assert kubelet.allocate(GPU, 1).ids


def test_restarted_plugin_has_its_devices(kubelet: Kubelet) -> None:
    """The plugin is stopped or killed before the restart."""
    for _ in range(10):
        with Plugin(kubelet.directory) as plugin:
            plugin.offer(resource())
            kubelet.wait_for_devices(GPU, healthy=4)
            stream = kubelet.endpoint(GPU).stream
        kubelet.wait_for(lambda stream=stream: stream.ended, "the stream's end")  # type: ignore[misc]
        assert kubelet.allocatable(GPU) == 0
    assert os.listdir(kubelet.directory) == ["kubelet.sock"]


def test_repeatedly_changed_resources_leave_others_unchanged(
    kubelet: Kubelet, plugin: Plugin
) -> None:
    """They leave no sockets and tasks."""
    plugin.offer(resource())
    kubelet.wait_for_devices(GPU, healthy=4)
    stream = kubelet.endpoint(GPU).stream
    before, tasks = fds(), plugin.thread.tasks()
    for turn in range(50):
        plugin.offer(resource(), resource(1, turn + 1, MIG))
        plugin.offer(resource())
    plugin.offer(resource(), resource(1, 3, MIG))
    kubelet.wait_for_devices(MIG, healthy=3)
    assert (len(stream.lists), stream.ended) == (1, False)
    plugin.offer(resource())
    kubelet.restart()
    kubelet.wait_for_devices(GPU, healthy=4)
    assert fds() <= before + 20
    eventually(lambda: plugin.thread.tasks() <= tasks, "the tasks' ends")


def direct_endpoint(kubelet: Kubelet) -> Endpoint:
    """Return a separate connection to the plugin's socket."""
    return Endpoint(kubelet.directory / "nvidia-gpu.sock", api.DevicePluginOptions(), Changes())


def has_healthy(stream: Stream, healthy: int) -> bool:
    """Return whether the last list of a stream has this number of healthy devices."""
    return bool(stream.lists) and healthy == sum(
        one.health == "Healthy" for one in stream.lists[-1]
    )


def test_stale_stream_does_not_block_others(kubelet: Kubelet, plugin: Plugin) -> None:
    """The stream is cancelled, or never read."""
    plugin.offer(resource())
    kubelet.wait_for_devices(GPU, healthy=4)
    ended, live = direct_endpoint(kubelet), [direct_endpoint(kubelet) for _ in range(3)]
    eventually(lambda: plugin.observed.open == 5, "five streams")
    ended.close()
    # A client that opens a stream and does not read it.
    with grpc.insecure_channel(services.target(str(live[0].socket))) as channel:
        unread = channel.unary_stream(
            services.LIST_AND_WATCH.path,
            request_serializer=api.Empty.SerializeToString,
            response_deserializer=api.ListAndWatchResponse.FromString,
        )(api.Empty())
        for turn in range(1, 11):
            sick = {"GPU-0": "XID 79"} if turn % 2 else {}
            healthy = 4 - 2 * len(sick)
            plugin.offer(resource(), unhealthy=sick)
            for endpoint in live:
                eventually(partial(has_healthy, endpoint.stream, healthy))
            kubelet.wait_for_devices(GPU, healthy=healthy, unhealthy=4 - healthy)
        unread.cancel()
    for endpoint in live:
        endpoint.close()
    eventually(lambda: plugin.observed.open == 1, "the kubelet's stream only")


def test_cancelled_streams_leave_no_tasks_or_descriptors(kubelet: Kubelet, plugin: Plugin) -> None:
    plugin.offer(resource())
    kubelet.wait_for_devices(GPU, healthy=4)
    endpoint = direct_endpoint(kubelet)
    eventually(lambda: plugin.observed.open == 2)
    tasks, before = plugin.thread.tasks(), fds()
    for _ in range(100):
        endpoint.watch().cancel()
    for _ in range(10):
        direct_endpoint(kubelet).close()
    eventually(lambda: plugin.observed.open == 2, "the streams' ends")
    eventually(lambda: plugin.thread.tasks() <= tasks, "the tasks' ends")
    eventually(lambda: fds() <= before + 10, "the connections' ends")
    endpoint.close()


def test_fault_of_many_units_is_one_list(kubelet: Kubelet, plugin: Plugin) -> None:
    """A fault of 400 units and a lost GPU are one list each."""
    many = resource(4, 100)
    plugin.offer(many)
    kubelet.wait_for_devices(GPU, healthy=400)
    plugin.offer(many, unhealthy={f"GPU-{index}": "wait failed" for index in range(4)})
    kubelet.wait_for_devices(GPU, healthy=0, unhealthy=400)
    plugin.offer(many, unhealthy={"GPU-2": "lost"})
    kubelet.wait_for_devices(GPU, healthy=300, unhealthy=100)
    assert len(kubelet.endpoint(GPU).stream.lists) == 3


def test_fast_health_changes_end_in_the_last_state(kubelet: Kubelet, plugin: Plugin) -> None:
    """Allocations succeed meanwhile."""
    plugin.offer(resource())
    kubelet.wait_for_devices(GPU, healthy=4)
    done = threading.Event()

    def flap() -> None:
        for turn in range(300):
            plugin.offer(resource(), unhealthy={"GPU-0": "flaps"} if turn % 2 else {})
        plugin.offer(resource(), unhealthy={"GPU-0": "lost"})
        done.set()

    flapping = threading.Thread(target=flap)
    flapping.start()
    endpoint = kubelet.endpoint(GPU)
    while not done.is_set():
        assert endpoint.allocate(["GPU-1::0"]).container_responses
    flapping.join()
    kubelet.wait_for_devices(GPU, healthy=2, unhealthy=2)
    assert len(endpoint.stream.lists) <= 302
