# SPDX-License-Identifier: Apache-2.0
"""Resources kept on offer: offered, registered, changed, withdrawn."""

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
from tests.kubelet.kubelet import AdmissionError, Kubelet
from tests.kubelet.plugin import Answers, Observed, Plugin, resource
from tests.kubelet.pod_resources import PodResources, pod

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
    """Return the names in the plugin directory, less the kubelet's."""
    return set(os.listdir(kubelet.directory)) - {"kubelet.sock"}


def inode(path: Path) -> int:
    return path.stat().st_ino


def test_a_resource_is_served_and_registered(kubelet: Kubelet, plugin: Plugin) -> None:
    """The request has the version, the name of the socket, and the options."""
    plugin.offer(resource())
    assert sockets(kubelet) == {"nvidia-gpu.sock"}
    kubelet.wait_for_devices(GPU, healthy=4)
    (told,) = kubelet.registrations
    assert (told.resource, told.endpoint, told.version) == (GPU, "nvidia-gpu.sock", "v1beta1")
    assert told.options.pre_start_required
    assert told.options.get_preferred_allocation_available


def test_pods_get_their_units(kubelet: Kubelet, plugin: Plugin) -> None:
    """Four containers get four units, the fifth none; one that ends makes room."""
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


def test_no_pod_gets_an_unhealthy_unit(kubelet: Kubelet, plugin: Plugin) -> None:
    """What is unhealthy counts as there, and is not handed out."""
    plugin.offer(resource(), unhealthy={"GPU-1": "XID 79"})
    kubelet.wait_for_devices(GPU, healthy=2, unhealthy=2)
    assert set(kubelet.allocate(GPU, 2).ids) == {"GPU-0::0", "GPU-0::1"}
    with pytest.raises(AdmissionError, match="Available: 0"):
        kubelet.allocate(GPU, 1)


def test_a_refusal_reaches_the_pod(kubelet: Kubelet, plugin: Plugin) -> None:
    """What a fault says is what the pod's status will say."""
    plugin.offer(resource())
    kubelet.wait_for_devices(GPU, healthy=4)
    plugin.answers.error = GpuhookError("GH0000", "no more than one", "ask for one")
    with pytest.raises(AdmissionError, match=r"^GH0000: no more than one \(ask for one\)$"):
        kubelet.allocate(GPU, 2)


def test_only_what_changed_is_touched(kubelet: Kubelet, plugin: Plugin) -> None:
    """A second resource comes and goes; the first keeps socket, registration and stream."""
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


def test_check_before_each_start_can_be_asked_for_later(kubelet: Kubelet) -> None:
    """The kubelet hears of it with the registration alone."""
    with Plugin(kubelet.directory) as plugin:
        plugin.offer(resource())
        kubelet.wait_for_devices(GPU, healthy=4)
        container = kubelet.allocate(GPU, 1)
        kubelet.pre_start(container)
        assert plugin.observed.count("pre_started") == 0
        plugin.observed.wait_for("registered")  # a registration under way would be given up
        plugin.require_pre_start(True)
        plugin.require_pre_start(True)
        plugin.observed.wait_for("registered", 2)
        kubelet.wait_for_devices(GPU, healthy=4)
        kubelet.pre_start(container)
        assert plugin.observed.count("pre_started") == 1
        assert [one.options.pre_start_required for one in kubelet.registrations] == [False, True]


def test_two_domains_with_one_word(kubelet: Kubelet, plugin: Plugin) -> None:
    """Resources that differ in their domain only are served side by side."""
    other = "example.com/gpu"
    plugin.offer(resource(), resource(1, 3, other))
    kubelet.wait_for_devices(GPU, healthy=4)
    kubelet.wait_for_devices(other, healthy=3)
    assert len(sockets(kubelet)) == 2


def test_an_orderly_end(kubelet: Kubelet, plugin: Plugin) -> None:
    """Stopping zeroes the resource at once, ends the streams, and takes our sockets along."""
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


def test_the_socket_of_a_newer_process_is_left(kubelet: Kubelet, plugin: Plugin) -> None:
    """Who comes later takes over; the older one waits, does not fight, and removes nothing."""
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


def test_the_older_process_serves_again(kubelet: Kubelet, plugin: Plugin) -> None:
    """Where the newer one goes, the older one is there again."""
    plugin.offer(resource())
    with Plugin(kubelet.directory) as newer:
        newer.offer(resource(1, 1))
        plugin.observed.wait_for("serving_failed")
    plugin.observed.wait_for("serving", 2)
    kubelet.wait_for_devices(GPU, healthy=4)


def test_the_kubelet_comes_later(tmp_path: Path) -> None:
    """Without a kubelet, without its directory even, it waits; then it is there."""
    directory = tmp_path / "a" / "plugins"
    with Plugin(directory) as plugin:
        plugin.offer(resource())
        assert plugin.observed.count("serving_failed") >= 1
        assert plugin.observed.count("kubelet_absent") == 1
        with Kubelet(directory) as kubelet:
            kubelet.wait_for_devices(GPU, healthy=4)
            plugin.observed.wait_for("registered")
            assert plugin.observed.count("registration_failed") == 0


def test_no_kubelet_is_wanted(tmp_path: Path) -> None:
    """With the socket "" nothing says that anything was registered, and that is said once."""
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


def test_the_kubelet_refuses(kubelet: Kubelet, plugin: Plugin) -> None:
    """The kubelet's message is reported, and the registration is retried until it succeeds."""
    kubelet.refuses = "the ResourceName is invalid"
    plugin.offer(resource())
    plugin.observed.wait_for("registration_failed", 3)
    error = plugin.observed.errors[0]
    assert error.code == "GH1823"
    assert "UNKNOWN the ResourceName is invalid" in error.message
    assert plugin.observed.count("registered") == 0
    kubelet.refuses = ""
    kubelet.wait_for_devices(GPU, healthy=4)


def test_a_socket_that_nobody_listens_on_yet(tmp_path: Path) -> None:
    """Between bind and listen of the kubelet a call fails; it is tried again at once."""
    with Plugin(tmp_path) as plugin:
        plugin.offer(resource())
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(tmp_path / "kubelet.sock"))
            plugin.observed.wait_for("registration_failed")
        with Kubelet(tmp_path) as kubelet:
            kubelet.wait_for_devices(GPU, healthy=4)


def test_a_kubelet_that_hangs(tmp_path: Path) -> None:
    """A kubelet that does not answer a call does not prevent a registration with the next one."""
    with Plugin(tmp_path) as plugin, socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(tmp_path / "kubelet.sock"))
        hung.listen()
        plugin.offer(resource())
        connection, _ = hung.accept()
        with connection, Kubelet(tmp_path) as kubelet:
            kubelet.wait_for_devices(GPU, healthy=4)
            plugin.observed.wait_for("registered")
            assert plugin.observed.count("registration_failed") == 0


def test_stopping_while_the_kubelet_hangs(tmp_path: Path) -> None:
    """A registration that does not end is given up when the plugin stops."""
    with Plugin(tmp_path) as plugin, socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(tmp_path / "kubelet.sock"))
        hung.listen()
        plugin.offer(resource())
        connection, _ = hung.accept()
        with connection:
            plugin.stop()
        assert plugin.thread.tasks() == 0
        assert plugin.observed.count("registered") == 0


def test_tasks_that_are_cancelled(tmp_path: Path) -> None:
    """What keeps a resource ends when its loop wants it to, in the middle of a call, too."""

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


def test_a_fault_of_ours_is_not_the_end(
    kubelet: Kubelet, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected error is reported, and the next event is handled."""

    def broken(*_: object) -> None:
        monkeypatch.undo()
        raise ZeroDivisionError

    monkeypatch.setattr(resource_offer, "register", broken)
    plugin.offer(resource())
    plugin.observed.wait_for("broken")
    kubelet.restart()
    kubelet.wait_for_devices(GPU, healthy=4)


def test_touching_is_no_restart(kubelet: Kubelet, plugin: Plugin) -> None:
    """A kubelet's socket that is touched, or whose neighbours change, is the same kubelet."""
    plugin.offer(resource())
    kubelet.wait_for_devices(GPU, healthy=4)
    os.utime(kubelet.socket)
    kubelet.socket.chmod(0o600)
    (kubelet.directory / "kubelet_internal_checkpoint").touch()
    (kubelet.directory / "kubelet_internal_checkpoint").unlink()
    plugin.offer(resource(), resource(1, 1, MIG))
    kubelet.wait_for_devices(MIG, healthy=1)
    assert [one.resource for one in kubelet.registrations] == [GPU, MIG]


def test_a_kubelet_that_stopped_watching(
    kubelet: Kubelet, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet that dropped the resource without a restart is registered with again."""
    monkeypatch.setattr(resource_offer, "_REOPEN_TIMEOUT", 0.01)
    plugin.offer(resource())
    kubelet.wait_for_devices(GPU, healthy=4)
    kubelet.endpoint(GPU).stream.cancel()
    plugin.observed.wait_for("unwatched")
    kubelet.wait_for_devices(GPU, healthy=4)
    assert len(kubelet.registrations) == 2


def test_a_kubelet_that_never_watched(
    kubelet: Kubelet, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registration that led to no stream is made again."""
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


def test_without_inotify(
    tmp_path: Path, kubelet: Kubelet, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the node has no inotify left it is said, and looked at now and then."""

    def none_left(self: Inotify) -> None:
        raise OSError(24, "raise fs.inotify.max_user_instances", "inotify")

    monkeypatch.setattr(Inotify, "__init__", none_left)
    monkeypatch.setattr(plugin_sockets, "_INTERVAL_WITHOUT_INOTIFY", 0.01)
    plugin.offer(resource())
    assert plugin.observed.count("watch_failed") == 1
    kubelet.wait_for_devices(GPU, healthy=4)
    kubelet.restart()
    kubelet.wait_for_devices(GPU, healthy=4)


def test_nobody_tells(kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that were lost are made up for by a look, which comes by itself."""
    monkeypatch.setattr(plugin_sockets, "_INTERVAL", 0.01)
    monkeypatch.setattr(PluginSockets, "_on_change", lambda self, path, made: None)
    with Plugin(kubelet.directory) as plugin:
        plugin.offer(resource())
        kubelet.wait_for_devices(GPU, healthy=4)
        (kubelet.directory / "nvidia-gpu.sock").unlink()
        plugin.observed.wait_for("serving", 2)
        kubelet.wait_for_devices(GPU, healthy=4)


def test_a_directory_too_deep(tmp_path: Path) -> None:
    """A directory in which no socket can be is refused with the reason, before anything is."""
    with pytest.raises(GpuhookError) as raised:
        PluginSockets("/" + "d" * 100, "", Answers(), Observed())
    assert raised.value.code == "GH1822"


def test_one_kubelet_from_the_next(tmp_path: Path) -> None:
    """A socket is a new one if it was made again or has another inode."""
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


def test_log_lines_of_an_observer(capsys: pytest.CaptureFixture[str]) -> None:
    """The log tells what happens to people: who registered, what failed and what to do."""
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


def test_the_stand_in_for_pod_resources(tmp_path: Path) -> None:
    """The service answers what a test sets."""
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


def test_why_no_socket_can_be_made_is_told(tmp_path: Path) -> None:
    """The gRPC library does not say it, and a mount without write access is common."""
    from gpuhook.device_plugin.kubelet.grpc_endpoint import _bind_error

    assert _bind_error("/proc/nvidia-gpu.sock") not in ("", "no socket can be created there")
    assert _bind_error(str(tmp_path / "gone" / "a.sock")) == "No such file or directory"
    assert _bind_error(str(tmp_path / "a.sock")) == "no socket can be created there"
    assert list(tmp_path.iterdir()) == []
