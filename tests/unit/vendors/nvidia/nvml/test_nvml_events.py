# SPDX-License-Identifier: Apache-2.0
"""Watching GPUs: XIDs, storms, failing waits, lost GPUs, with a small real libnvidia-ml.so.1."""

from __future__ import annotations

import threading
from pathlib import Path

import pynvml
import pytest

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.nvml import nvml_inventory, nvml_sessions
from gpuhook.vendors.nvidia.nvml.nvml_events import (
    NvmlEventWatch,
    NvmlXidEvent,
    UnwatchedDevices,
    watched,
)
from tests.simulated import build, stub_events
from tests.simulated.node import SimulatedNode, make_node

SOON = 20_000  # milliseconds; an existing event is returned at once
FALLEN = "fallen off the bus or otherwise inaccessible"


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path, "lost-gpu", real_nodes=False)


@pytest.fixture
def t4(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path, "t4", real_nodes=False)


def uuids(node: SimulatedNode) -> list[str]:
    return [gpu.uuid for gpu in node.node.gpus if gpu.uuid and not gpu.lost]


def failure(watch: NvmlEventWatch) -> GpuhookError:
    with pytest.raises(GpuhookError) as caught:
        watch.wait(SOON)
    return caught.value


def make_old(node: SimulatedNode) -> None:
    library = Path(node.nvml_library)
    library.unlink()
    library.write_bytes(build.nvml_stub(old=True).read_bytes())


def test_xid_has_its_gpu(node: SimulatedNode) -> None:
    """Each event has the GPU, and the MIG instance if it is of one."""
    first, second, _ = uuids(node)
    with watched(node.nvml_library) as watch:
        assert watch.register(uuids(node)) == {}
        stub_events.inject_xid(node, second, 79)
        stub_events.inject_xid(node, first, 31, (3, 0))
        assert watch.wait(SOON) == NvmlXidEvent(second, 79)
        assert watch.wait(SOON) == NvmlXidEvent(first, 31, 3, 0)
        assert watch.wait(0) is None


def test_event_wakes_the_waiting_thread(t4: SimulatedNode) -> None:
    seen: list[NvmlXidEvent | None] = []
    with watched(t4.nvml_library) as watch:
        watch.register(uuids(t4))
        thread = threading.Thread(target=lambda: seen.append(watch.wait(SOON)))
        thread.start()
        stub_events.inject_xid(t4, uuids(t4)[0], 48)
        thread.join()
    assert seen == [NvmlXidEvent(uuids(t4)[0], 48)]


def test_storm_loses_no_event(t4: SimulatedNode) -> None:
    """A thousand XIDs at once are a thousand events, in their order."""
    gpu = uuids(t4)[0]
    with watched(t4.nvml_library) as watch:
        watch.register([gpu])
        stub_events.inject_xid(t4, gpu, 31, count=999)
        stub_events.inject_xid(t4, gpu, 79)
        events = [watch.wait(SOON) for _ in range(1000)]
        assert watch.wait(0) is None
    assert events == [NvmlXidEvent(gpu, 31)] * 999 + [NvmlXidEvent(gpu, 79)]


def test_bit_errors_are_not_xids(t4: SimulatedNode) -> None:
    """They wake no thread: a storm of them would keep it busy."""
    with watched(t4.nvml_library) as watch:
        watch.register(uuids(t4))
        stub_events.inject_ecc(t4, uuids(t4)[0], "single")
        stub_events.inject_ecc(t4, uuids(t4)[0], "double")
        stub_events.inject_xid(t4, uuids(t4)[0], 94)
        assert watch.wait(SOON) == NvmlXidEvent(uuids(t4)[0], 94)


def test_other_kinds_of_events_are_ignored(t4: SimulatedNode) -> None:
    """An event of another kind is not an XID, whatever number it has."""
    with watched(t4.nvml_library) as watch:
        stub_events.inject_ecc(t4, "-")
        assert watch.wait(SOON) is None


def test_event_of_an_unknown_device(t4: SimulatedNode) -> None:
    """The event has no GPU, and the reason."""
    with watched(t4.nvml_library) as watch:
        watch.register(uuids(t4))
        stub_events.inject_xid(t4, None, 79)
        assert watch.wait(SOON) == NvmlXidEvent(None, 79)


def test_gpu_that_is_lost_by_its_xid_has_its_uuid(node: SimulatedNode) -> None:
    """A GPU that reports XID 79 no longer answers calls."""
    gone = uuids(node)[1]
    with watched(node.nvml_library) as watch:
        watch.register(uuids(node))
        stub_events.say(node, gone, "lost_after 0")
        stub_events.inject_xid(node, gone, 79)
        assert watch.wait(SOON) == NvmlXidEvent(gone, 79)
        assert watch.lost() == {gone: FALLEN}


def test_old_library_has_no_instances(t4: SimulatedNode) -> None:
    """Events of a library from before MIG have no instance, not instance 0."""
    make_old(t4)
    with watched(t4.nvml_library) as watch:
        assert watch.register(uuids(t4)) == {}
        stub_events.inject_xid(t4, uuids(t4)[0], 62, (1, 1))
        assert watch.wait(SOON) == NvmlXidEvent(uuids(t4)[0], 62)


@pytest.mark.parametrize(
    ("line", "unwatched"),
    [
        ("events 0", UnwatchedDevices("the GPU has no events")),
        ("events 3", UnwatchedDevices("the GPU has no events")),
        ("fail events 3", UnwatchedDevices("the GPU has no events")),
        ("fail register 3", UnwatchedDevices("the GPU has no events")),
        ("fail register 999", UnwatchedDevices("NVML says: Unknown Error")),
        ("fail events 15", UnwatchedDevices(FALLEN, is_lost=True)),
        ("lost_after 0", UnwatchedDevices(FALLEN, is_lost=True)),
        (
            "fail handle 16",
            UnwatchedDevices("needs a reset before it can be used again", is_lost=True),
        ),
    ],
)
def test_gpus_that_cannot_be_watched(
    node: SimulatedNode, line: str, unwatched: UnwatchedDevices
) -> None:
    """A GPU without events has a reason other than a lost one's; the others are watched."""
    first, second, third = uuids(node)
    stub_events.say(node, second, line)
    with watched(node.nvml_library) as watch:
        assert watch.register(uuids(node)) == {second: unwatched}
        stub_events.inject_xid(node, second, 79)
        stub_events.inject_xid(node, third, 48)
        assert watch.wait(SOON) == NvmlXidEvent(third, 48)
        assert watch.register([first]) == {}


def test_gpu_with_xids_only(t4: SimulatedNode) -> None:
    """A GPU without ECC is watched for the events that it has."""
    stub_events.say(t4, uuids(t4)[0], "events 8")
    with watched(t4.nvml_library) as watch:
        assert watch.register(uuids(t4)) == {}
        stub_events.inject_xid(t4, uuids(t4)[0], 79)
        assert watch.wait(SOON) == NvmlXidEvent(uuids(t4)[0], 79)


def test_gpu_unknown_to_nvml_is_lost(t4: SimulatedNode) -> None:
    """A UUID from before a hot plug is a lost GPU."""
    with watched(t4.nvml_library) as watch:
        assert watch.register(["GPU-0"]) == {
            "GPU-0": UnwatchedDevices("NVML no longer knows it", is_lost=True)
        }


def test_failing_wait_names_the_lost_gpu(node: SimulatedNode) -> None:
    """The other GPUs are still watched."""
    first, second, _ = uuids(node)
    with watched(node.nvml_library) as watch:
        watch.register(uuids(node))
        stub_events.lose(node, second)
        error = failure(watch)
        assert error.code == "GH1240"
        assert f"; lost GPUs: {second} ({FALLEN})" in error.message
        assert first not in error.message
        assert watch.lost() == {second: FALLEN}
        stub_events.inject_xid(node, first, 48)
        assert watch.wait(SOON) == NvmlXidEvent(first, 48)
        stub_events.find(node, second)
        assert watch.lost() == {}


def test_failing_wait_without_a_lost_gpu(node: SimulatedNode) -> None:
    """It has NVML's text, each time until it works again."""
    with watched(node.nvml_library) as watch:
        watch.register(uuids(node))
        stub_events.fail_wait(node, 999, always=True)
        assert [failure(watch).code for _ in range(5)] == ["GH1240"] * 5
        message = failure(watch).message
        assert "Unknown Error" in message
        assert "lost GPUs" not in message
    with watched(node.nvml_library) as watch:
        assert failure(watch).code == "GH1240"
        stub_events.mend_wait(node)
        assert watch.wait(0) is None


def test_driver_is_removed_and_loaded_again(t4: SimulatedNode) -> None:
    """The wait and the next start fail; then all is as before."""
    with watched(t4.nvml_library) as watch:
        watch.register(uuids(t4))
        stub_events.take_away(t4)
        assert failure(watch).code == "GH1240"
        assert watch.lost() == {}
    with pytest.raises(GpuhookError) as caught, watched(t4.nvml_library):
        pass
    assert caught.value.code == "GH1204"
    stub_events.bring_back(t4)
    with watched(t4.nvml_library) as watch:
        assert watch.register(uuids(t4)) == {}
        stub_events.inject_xid(t4, uuids(t4)[0], 79)
        assert watch.wait(SOON) == NvmlXidEvent(uuids(t4)[0], 79)


def test_library_without_event_sets(t4: SimulatedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """An NVML that makes no event set is refused with its text, and shut down."""

    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlEventSetCreate", refuse)
    with pytest.raises(GpuhookError) as caught, watched(t4.nvml_library):
        pass
    assert caught.value.code == "GH1242"
    assert t4.nvml_library in caught.value.message
    with pytest.raises(pynvml.NVMLError):
        nvml_sessions.current()


def test_discovery_during_a_watch(node: SimulatedNode) -> None:
    """Reading the whole node in other threads keeps the watch and its library."""
    asked: list[int] = []

    def ask() -> None:
        for _ in range(20):
            with nvml_inventory.opened(node.nvml_library) as answering:
                asked.append(len(answering.gpus()))

    with watched(node.nvml_library) as watch:
        watch.register(uuids(node))
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(50):
            stub_events.inject_xid(node, uuids(node)[0], number)
            assert watch.wait(SOON) == NvmlXidEvent(uuids(node)[0], number)
        for thread in threads:
            thread.join()
    assert asked == [4] * 80


def test_other_library_during_a_watch(tmp_path: Path) -> None:
    """A new driver's library is used while the old one's is still watched."""
    old = make_node(tmp_path / "old", "t4", real_nodes=False)
    new = make_node(tmp_path / "new", "h100x8", real_nodes=False)
    with watched(old.nvml_library) as watch:
        watch.register(uuids(old))
        with nvml_inventory.opened(new.nvml_library) as answering:
            assert len(answering.gpus()) == 8
            stub_events.inject_xid(old, uuids(old)[0], 79)
            assert watch.wait(SOON) == NvmlXidEvent(uuids(old)[0], 79)
            assert len(answering.gpus()) == 8
        stub_events.inject_xid(old, uuids(old)[0], 48)
        assert watch.wait(SOON) == NvmlXidEvent(uuids(old)[0], 48)


def test_watch_can_be_used_by_any_thread(tmp_path: Path) -> None:
    """A thread that opened another library waits in the watch's own."""
    first = make_node(tmp_path / "first", "t4", real_nodes=False)
    other = make_node(tmp_path / "other", "h100x8", real_nodes=False)
    seen: list[object] = []

    def wait(watch: NvmlEventWatch) -> None:
        with nvml_inventory.opened(other.nvml_library):
            seen.append(watch.wait(SOON))

    with watched(first.nvml_library) as watch:
        watch.register(uuids(first))
        stub_events.inject_xid(first, uuids(first)[0], 79)
        thread = threading.Thread(target=wait, args=(watch,))
        thread.start()
        thread.join()
    assert seen == [NvmlXidEvent(uuids(first)[0], 79)]


def test_mig_instance_has_no_own_events(tmp_path: Path) -> None:
    """Instances are watched by their GPU: its events have the instance."""
    node = make_node(tmp_path, "a100-mig", real_nodes=False)
    gpu = next(gpu for gpu in node.node.gpus if gpu.instances)
    instance = gpu.instances[0]
    ids = (instance.gpu_instance, instance.compute_instance)
    with watched(node.nvml_library) as watch:
        unwatched = watch.register([str(gpu.uuid), instance.uuid])
        assert unwatched == {instance.uuid: UnwatchedDevices("the GPU has no events")}
        stub_events.inject_xid(node, str(gpu.uuid), 45, ids)
        assert watch.wait(SOON) == NvmlXidEvent(gpu.uuid, 45, *ids)
