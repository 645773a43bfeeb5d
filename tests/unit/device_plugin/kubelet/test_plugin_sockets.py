# SPDX-License-Identifier: Apache-2.0
"""PluginSockets with a simulated kubelet: resources are served, registered and withdrawn."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuhook.device_plugin.kubelet import plugin_sockets, resource_offer
from gpuhook.device_plugin.kubelet.observer import Observer
from gpuhook.device_plugin.kubelet.plugin_sockets import PluginSockets
from gpuhook.device_plugin.kubelet.registration import KubeletSocket
from gpuhook.device_plugin.metrics.counters import Counters
from gpuhook.errors import GpuhookError
from gpuhook.kernel.inotify import Inotify
from tests.depth import depth
from tests.figures import Figures
from tests.kubelet.kubelet import AdmissionError, Kubelet
from tests.kubelet.plugin import Answers, Observed, Plugin, resource
from tests.kubelet.pod_resources import PodResources, pod

WITHDRAWALS = depth(10, 100, 5000)
GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"


@pytest.fixture
def kubelet(plugins_path: Path) -> Iterator[Kubelet]:
    with Kubelet(plugins_path) as started:
        yield started


@pytest.fixture
def plugin(kubelet: Kubelet) -> Iterator[Plugin]:
    with Plugin(kubelet.directory, pre_start=True) as made:
        yield made


def sockets(kubelet: Kubelet) -> set[str]:
    """Return the names in the plugin directory without the kubelet's socket."""
    return set(os.listdir(kubelet.directory)) - {"kubelet.sock"}


def inode(path: Path) -> int:
    return path.stat().st_ino


def test_resource_is_served_and_registered(kubelet: Kubelet, plugin: Plugin) -> None:
    """The request has the version, the name of the socket, and the options."""
    plugin.offer(resource())
    assert sockets(kubelet) == {"nvidia-gpu.sock"}
    kubelet.wait_for_devices(GPU, healthy=4)
    (registration,) = kubelet.registrations
    assert (registration.resource, registration.endpoint, registration.version) == (
        GPU,
        "nvidia-gpu.sock",
        "v1beta1",
    )
    assert registration.options.pre_start_required
    assert registration.options.get_preferred_allocation_available


def test_each_container_gets_a_free_unit(kubelet: Kubelet, plugin: Plugin) -> None:
    """Without a free unit, Allocate is refused until a container ends."""
    plugin.offer(resource())
    kubelet.wait_for_devices(GPU, healthy=4)
    got = [kubelet.allocate(GPU, 1) for _ in range(4)]
    assert len({one.ids for one in got}) == 4
    assert [one.response.envs["GPUS"] for one in got] == [one.ids[0] for one in got]
    with pytest.raises(AdmissionError, match="Requested: 1, Available: 0"):
        kubelet.allocate(GPU, 1)
    kubelet.pre_start(got[0])
    assert plugin.observed.count("pre_started") == 1
    kubelet.release(got[0])
    assert kubelet.allocate(GPU, 1).ids == got[0].ids


def test_unhealthy_unit_is_not_allocated(kubelet: Kubelet, plugin: Plugin) -> None:
    """It counts as capacity."""
    plugin.offer(resource(), unhealthy={"GPU-1": "XID 79"})
    kubelet.wait_for_devices(GPU, healthy=2, unhealthy=2)
    assert set(kubelet.allocate(GPU, 2).ids) == {"GPU-0::0", "GPU-0::1"}
    with pytest.raises(AdmissionError, match="Available: 0"):
        kubelet.allocate(GPU, 1)


def test_refusal_is_the_message_of_the_pod(kubelet: Kubelet, plugin: Plugin) -> None:
    plugin.offer(resource())
    kubelet.wait_for_devices(GPU, healthy=4)
    plugin.answers.error = GpuhookError("GH0000", "no more than one", "ask for one")
    with pytest.raises(AdmissionError, match=r"^GH0000: no more than one \(ask for one\)$"):
        kubelet.allocate(GPU, 2)


def test_unchanged_resource_keeps_socket_registration_and_stream(
    kubelet: Kubelet, plugin: Plugin
) -> None:
    """A second resource is added and removed."""
    plugin.offer(resource())
    kubelet.wait_for_devices(GPU, healthy=4)
    kept = inode(kubelet.directory / "nvidia-gpu.sock")
    stream = kubelet.endpoint(GPU).stream
    plugin.offer(resource(), resource(1, 7, MIG))
    kubelet.wait_for_devices(MIG, healthy=7)
    going = kubelet.endpoint(MIG).stream
    plugin.offer(resource())
    kubelet.wait_for(lambda: going.ended, "the end of the stream")
    assert going.lists[-1] == []
    assert kubelet.capacity(MIG) == 0
    assert sockets(kubelet) == {"nvidia-gpu.sock"}
    assert inode(kubelet.directory / "nvidia-gpu.sock") == kept
    assert [one.resource for one in kubelet.registrations] == [GPU, MIG]
    assert (len(stream.lists), stream.ended) == (1, False)


def test_pre_start_required_later_registers_again(kubelet: Kubelet) -> None:
    """The kubelet learns of the option with a registration only."""
    with Plugin(kubelet.directory) as plugin:
        plugin.offer(resource())
        kubelet.wait_for_devices(GPU, healthy=4)
        container = kubelet.allocate(GPU, 1)
        kubelet.pre_start(container)
        assert plugin.observed.count("pre_started") == 0
        plugin.observed.wait_for("registered")  # a registration in progress would be cancelled
        plugin.require_pre_start(True)
        plugin.require_pre_start(True)
        plugin.observed.wait_for("registered", 2)
        kubelet.wait_for_devices(GPU, healthy=4)
        kubelet.pre_start(container)
        assert plugin.observed.count("pre_started") == 1
        assert [one.options.pre_start_required for one in kubelet.registrations] == [False, True]


def test_resources_of_two_domains_are_served_together(kubelet: Kubelet, plugin: Plugin) -> None:
    other = "example.com/gpu"
    plugin.offer(resource(), resource(1, 3, other))
    kubelet.wait_for_devices(GPU, healthy=4)
    kubelet.wait_for_devices(other, healthy=3)
    assert len(sockets(kubelet)) == 2


def test_stop_withdraws_resources_and_removes_sockets(kubelet: Kubelet, plugin: Plugin) -> None:
    """Each stream gets an empty list and ends; files of others remain."""
    (kubelet.directory / "another.sock").touch()
    plugin.offer(resource(), resource(1, 1, MIG))
    kubelet.wait_for_devices(GPU, healthy=4)
    kubelet.wait_for_devices(MIG, healthy=1)
    streams = [kubelet.endpoint(name).stream for name in (GPU, MIG)]
    plugin.stop()
    kubelet.wait_for(lambda: all(stream.ended for stream in streams), "the streams' end")
    assert [stream.lists[-1] for stream in streams] == [[], []]
    assert sockets(kubelet) == {"another.sock"}
    assert plugin.observed.count("stopped") == 2
    assert plugin.thread.tasks() == 0


@pytest.mark.soak
def test_each_withdrawal_sends_the_empty_list(
    kubelet: Kubelet, plugin: Plugin, figures: Figures
) -> None:
    """Without that list, the kubelet would count the units as unhealthy for five minutes."""
    for number in range(WITHDRAWALS):
        units = 7 if number % 10 else 7000
        plugin.offer(resource(1, units, MIG))
        kubelet.wait_for_devices(MIG, healthy=units)
        stream = kubelet.endpoint(MIG).stream
        plugin.offer()
        kubelet.wait_for(lambda stream=stream: stream.ended, "its end")  # type: ignore[misc]
        assert stream.lists[-1] == []
    figures.record("withdrawals of a resource", str(WITHDRAWALS))


def test_newer_plugin_takes_the_socket_over(kubelet: Kubelet, plugin: Plugin) -> None:
    """The older plugin reports it, and does not remove the newer socket."""
    plugin.offer(resource())
    kubelet.wait_for_devices(GPU, healthy=4)
    with Plugin(kubelet.directory) as newer:
        newer.offer(resource(1, 1))
        plugin.observed.wait_for("serving_failed")
        assert plugin.observed.errors[0].code == "GH1824"
        kubelet.wait_for_devices(GPU, healthy=1)
        kept = inode(kubelet.directory / "nvidia-gpu.sock")
        plugin.stop()
        assert inode(kubelet.directory / "nvidia-gpu.sock") == kept
        assert newer.observed.count("serving") == 1


def test_older_plugin_serves_again_after_the_newer_one_stops(
    kubelet: Kubelet, plugin: Plugin
) -> None:
    plugin.offer(resource())
    with Plugin(kubelet.directory) as newer:
        newer.offer(resource(1, 1))
        plugin.observed.wait_for("serving_failed")
    plugin.observed.wait_for("serving", 2)
    kubelet.wait_for_devices(GPU, healthy=4)


def test_plugin_registers_when_the_kubelet_starts(tmp_path: Path) -> None:
    """Until then the plugin directory may be missing."""
    directory = tmp_path / "a" / "plugins"
    with Plugin(directory) as plugin:
        plugin.offer(resource())
        assert plugin.observed.count("serving_failed") >= 1
        assert plugin.observed.count("kubelet_absent") == 1
        with Kubelet(directory) as kubelet:
            kubelet.wait_for_devices(GPU, healthy=4)
            plugin.observed.wait_for("registered")
            assert plugin.observed.count("registration_failed") == 0


def test_empty_kubelet_socket_disables_registration(tmp_path: Path) -> None:
    """Each resource is reported once as not registered."""
    with Plugin(tmp_path, kubelet="") as plugin, Kubelet(tmp_path) as kubelet:
        plugin.offer(resource())
        plugin.offer(resource(), unhealthy={"GPU-0": "lost"})
        plugin.offer(resource(), resource(1, 1, MIG))
        plugin.observed.wait_for("registration_skipped", 2)
        names = [name for name, _ in plugin.observed.events]
        assert names.count("registration_skipped") == 2
        assert "registered" not in names
        assert "kubelet_absent" not in names
        assert kubelet.registrations == []


def test_refused_registration_is_retried(kubelet: Kubelet, plugin: Plugin) -> None:
    """The kubelet's message is reported."""
    kubelet.refuses = "the ResourceName is invalid"
    plugin.offer(resource())
    plugin.observed.wait_for("registration_failed", 3)
    error = plugin.observed.errors[0]
    assert error.code == "GH1823"
    assert "UNKNOWN the ResourceName is invalid" in error.message
    assert plugin.observed.count("registered") == 0
    kubelet.refuses = ""
    kubelet.wait_for_devices(GPU, healthy=4)


def test_registration_at_a_socket_without_a_listener_is_retried(tmp_path: Path) -> None:
    """The kubelet binds its socket before it listens."""
    with Plugin(tmp_path) as plugin:
        plugin.offer(resource())
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(tmp_path / "kubelet.sock"))
            plugin.observed.wait_for("registration_failed")
        with Kubelet(tmp_path) as kubelet:
            kubelet.wait_for_devices(GPU, healthy=4)


def test_hanging_kubelet_does_not_block_registration_with_the_next_one(tmp_path: Path) -> None:
    with Plugin(tmp_path) as plugin, socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(tmp_path / "kubelet.sock"))
        hung.listen()
        plugin.offer(resource())
        connection, _ = hung.accept()
        with connection, Kubelet(tmp_path) as kubelet:
            kubelet.wait_for_devices(GPU, healthy=4)
            plugin.observed.wait_for("registered")
            assert plugin.observed.count("registration_failed") == 0


def test_stop_cancels_a_hanging_registration(tmp_path: Path) -> None:
    with Plugin(tmp_path) as plugin, socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(tmp_path / "kubelet.sock"))
        hung.listen()
        plugin.offer(resource())
        connection, _ = hung.accept()
        with connection:
            plugin.stop()
        assert plugin.thread.tasks() == 0
        assert plugin.observed.count("registered") == 0


def test_cancelled_tasks_end_in_the_middle_of_a_call(tmp_path: Path) -> None:
    async def work(hung: socket.socket) -> None:
        observed = Observed()
        serving = PluginSockets(str(tmp_path), str(tmp_path / "kubelet.sock"), Answers(), observed)
        await serving.offer((resource(),), {})
        connection, _ = await asyncio.to_thread(hung.accept)
        tasks = {one._task for one in serving._offerings.values()}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        connection.close()
        await serving.stop()
        assert observed.count("stopped") == 1

    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(tmp_path / "kubelet.sock"))
        hung.listen()
        asyncio.run(work(hung))
    assert os.listdir(tmp_path) == ["kubelet.sock"]


def test_unexpected_error_is_reported_and_the_next_event_handled(
    kubelet: Kubelet, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        monkeypatch.undo()
        raise ZeroDivisionError

    monkeypatch.setattr(resource_offer, "register", broken)
    plugin.offer(resource())
    plugin.observed.wait_for("broken")
    kubelet.restart()
    kubelet.wait_for_devices(GPU, healthy=4)


def test_touched_kubelet_socket_is_no_restart(kubelet: Kubelet, plugin: Plugin) -> None:
    """Changes of other files in the directory are no restart either."""
    plugin.offer(resource())
    kubelet.wait_for_devices(GPU, healthy=4)
    os.utime(kubelet.socket)
    kubelet.socket.chmod(0o600)
    (kubelet.directory / "kubelet_internal_checkpoint").touch()
    (kubelet.directory / "kubelet_internal_checkpoint").unlink()
    plugin.offer(resource(), resource(1, 1, MIG))
    kubelet.wait_for_devices(MIG, healthy=1)
    assert [one.resource for one in kubelet.registrations] == [GPU, MIG]


def test_ended_stream_registers_the_resource_again(
    kubelet: Kubelet, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet can drop a resource without a restart."""
    monkeypatch.setattr(resource_offer, "_REOPEN_TIMEOUT", 0.01)
    plugin.offer(resource())
    kubelet.wait_for_devices(GPU, healthy=4)
    kubelet.endpoint(GPU).stream.cancel()
    plugin.observed.wait_for("unwatched")
    kubelet.wait_for_devices(GPU, healthy=4)
    assert len(kubelet.registrations) == 2


def test_registration_without_a_stream_is_repeated(
    kubelet: Kubelet, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_offer, "_STREAM_TIMEOUT", 0.01)
    monkeypatch.setattr(resource_offer.ResourceOffer, "_stream_ended", lambda self: None)
    plugin.offer(resource())
    kubelet.wait_for_devices(GPU, healthy=4)
    kubelet.endpoint(GPU).stream.cancel()
    plugin.observed.wait_for("streams", 2)
    kubelet.restart()
    kubelet.wait_for_devices(GPU, healthy=4)
    kubelet.endpoint(GPU).stream.cancel()
    plugin.observed.wait_for("unwatched")


def test_kubelet_is_polled_without_inotify(
    tmp_path: Path, kubelet: Kubelet, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure of inotify is reported."""

    def none_left(self: Inotify) -> None:
        raise OSError(24, "raise fs.inotify.max_user_instances", "inotify")

    monkeypatch.setattr(Inotify, "__init__", none_left)
    monkeypatch.setattr(plugin_sockets, "_INTERVAL_WITHOUT_INOTIFY", 0.01)
    plugin.offer(resource())
    assert plugin.observed.count("watch_failed") == 1
    kubelet.wait_for_devices(GPU, healthy=4)
    kubelet.restart()
    kubelet.wait_for_devices(GPU, healthy=4)


def test_lost_events_are_found_by_the_poll(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_sockets, "_INTERVAL", 0.01)
    monkeypatch.setattr(PluginSockets, "_on_change", lambda self, path, made: None)
    with Plugin(kubelet.directory) as plugin:
        plugin.offer(resource())
        kubelet.wait_for_devices(GPU, healthy=4)
        (kubelet.directory / "nvidia-gpu.sock").unlink()
        plugin.observed.wait_for("serving", 2)
        kubelet.wait_for_devices(GPU, healthy=4)


def test_too_long_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GpuhookError) as raised:
        PluginSockets("/" + "d" * 100, "", Answers(), Observed())
    assert raised.value.code == "GH1822"


def test_kubelet_socket_change_is_recognized_by_inode(tmp_path: Path) -> None:
    """A socket that was created again is new even with the same inode."""
    path = tmp_path / "kubelet.sock"
    found = KubeletSocket(str(path))
    seen = [found.current]
    assert not found.look(made=False)
    path.touch()
    assert found.look(made=False)
    seen.append(found.current)
    os.utime(path)
    assert not found.look(made=False)
    assert found.look(made=True)
    seen.append(found.current)
    path.unlink()
    assert found.look(made=False)
    seen.append(found.current)
    assert seen[0] is seen[3] is None
    assert len(set(seen)) == 3
    assert not KubeletSocket("").look(made=True)


def test_observer_logs_events_with_code_and_duration(capsys: pytest.CaptureFixture[str]) -> None:
    from gpuhook.errors import fault
    from gpuhook.host import logs

    logs.configure("json")
    log = Observer(Counters())
    error = fault("GH1823", socket="/k", resource=GPU, reason="UNAVAILABLE")
    log.serving(GPU, "/p/nvidia-gpu.sock")
    log.serving_failed(GPU, error, None)
    log.registration_skipped(GPU)
    log.registered(GPU, 0.0125)
    log.registration_failed(GPU, error, 0.005)
    log.registration_failed(GPU, error, 10.0)
    log.kubelet_absent("/k")
    log.unwatched(GPU)
    log.watch_failed(OSError(24, "raise it", "inotify"))
    log.list_sent(GPU, 4, 100)
    log.streams(GPU, 1)
    log.allocated(GPU, [["GPU-0::1", "GPU-1::0"]], 0.0012)
    log.preferred(GPU, 0.001)
    log.pre_started(GPU, ["GPU-0::1"], 0.001)
    log.refused(GPU, "Allocate", "no", 0.001)
    log.stopped(GPU)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert len(lines) == 12
    assert not any('"registered"' in line for line in lines[:3])
    assert '"milliseconds": 12.5' in lines[3]
    assert '"code": "GH1823"' in lines[4]
    assert '"retry": 10.0' in lines[4]
    assert '"GPU-0::1 GPU-1::0"' in lines[8]


def test_simulated_pod_resources_service_lists_its_pods(tmp_path: Path) -> None:
    import grpc

    from gpuhook.device_plugin.api import podresources_pb2 as pods
    from gpuhook.device_plugin.api import services

    with PodResources(tmp_path / "kubelet.sock") as served:
        served.pods.append(pod("default", "a", "main", GPU, ["GPU-0::1"]))
        with grpc.insecure_channel(services.target(str(served.socket))) as channel:
            listing = channel.unary_unary(
                services.LIST_PODS.path,
                request_serializer=pods.ListPodResourcesRequest.SerializeToString,
                response_deserializer=pods.ListPodResourcesResponse.FromString,
            )
            listed = listing(pods.ListPodResourcesRequest(), timeout=60)
            assert list(listed.pod_resources) == served.pods
    assert served.calls == 1


def test_bind_error_has_the_reason(tmp_path: Path) -> None:
    """The gRPC library does not report it; a mount without write access is common."""
    from gpuhook.device_plugin.kubelet.grpc_endpoint import _bind_error

    assert _bind_error("/proc/nvidia-gpu.sock") not in ("", "no socket can be created there")
    assert _bind_error(str(tmp_path / "gone" / "a.sock")) == "No such file or directory"
    assert _bind_error(str(tmp_path / "a.sock")) == "no socket can be created there"
    assert list(tmp_path.iterdir()) == []
