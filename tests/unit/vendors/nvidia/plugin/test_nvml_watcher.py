# SPDX-License-Identifier: Apache-2.0
"""The thread that waits for XIDs, with a fake of the NVML event set."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from gpuhook.errors import GpuhookError, fault
from gpuhook.vendors.nvidia.nvml.nvml_events import NvmlEventWatch, NvmlXidEvent, UnwatchedDevices
from gpuhook.vendors.nvidia.plugin.nvml_watcher import (
    QUIET_WAITS,
    Actions,
    Message,
    RateLimit,
    Watcher,
    WatchFailed,
    WatchStarted,
    XidReport,
    poster,
)
from tests.waiting import eventually

SECONDS = 20


@dataclass
class FakeNvml(NvmlEventWatch):
    """Returns events from a queue; wait() raises the exceptions in it."""

    events: queue.Queue[XidReport | Exception] = field(default_factory=queue.Queue)
    opened: int = 0
    closed: int = 0
    registered: list[tuple[str, ...]] = field(default_factory=list)
    unwatched: dict[str, UnwatchedDevices] = field(default_factory=dict)
    open_faults: list[Exception] = field(default_factory=list)
    losses: dict[str, str] = field(default_factory=dict)
    actions: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)

    @contextmanager
    def open(self) -> Iterator[FakeNvml]:
        if self.open_faults:
            raise self.open_faults.pop(0)
        self.opened += 1
        try:
            yield self
        finally:
            self.closed += 1

    def register(self, uuids: Iterable[str]) -> dict[str, UnwatchedDevices]:
        self.registered.append(tuple(uuids))
        return self.unwatched

    def wait(self, milliseconds: int) -> NvmlXidEvent | None:
        self.waits.append(milliseconds)
        try:
            found = self.events.get(timeout=milliseconds / 1000)
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise found
        return NvmlXidEvent(found.uuid, found.xid, found.gpu_instance, found.compute_instance)

    def lost(self) -> dict[str, str]:
        return self.losses

    def action(self, uuid: str) -> str | None:
        self.asked.append(uuid)
        if uuid == "GPU-lost":
            raise nvml_fault()
        return self.actions.get(uuid)


def nvml_fault() -> GpuhookError:
    return fault("GH1206", path="/lib/libnvidia-ml.so.1", reason="Unknown Error")


class Posted:
    """The messages that the thread posts."""

    def __init__(self) -> None:
        self.queue: queue.Queue[Message] = queue.Queue()

    def next(self, kind: type[Message]) -> Message:
        while True:
            message = self.queue.get(timeout=SECONDS)
            if isinstance(message, kind):
                return message


@contextmanager
def watching(nvml: FakeNvml, posted: Posted, **options: object) -> Iterator[Watcher]:
    watcher = Watcher(
        nvml.open,
        nvml.action,
        posted.queue.put,
        milliseconds=10,
        **options,  # type: ignore[arg-type]
    )
    watcher.start(["GPU-0", "GPU-1"])
    try:
        yield watcher
    finally:
        watcher.stop()
        assert watcher.join(SECONDS)


def test_xid_is_posted_with_the_driver_action() -> None:
    """The first message lists the GPUs without events; NVML is shut down at the end."""
    unwatched = {
        "GPU-1": UnwatchedDevices("no events"),
        "GPU-2": UnwatchedDevices("off the bus", is_lost=True),
    }
    nvml, posted = FakeNvml(unwatched=unwatched, actions={"GPU-0": "reset"}), Posted()
    with watching(nvml, posted):
        assert posted.next(WatchStarted) == WatchStarted(
            {"GPU-1": "no events"}, {"GPU-2": "off the bus"}
        )
        nvml.events.put(XidReport("GPU-0", 95, 3, 0))
        assert posted.next(XidReport) == XidReport("GPU-0", 95, 3, 0, 1, "reset")
        nvml.events.put(XidReport(None, 79))
        assert posted.next(XidReport) == XidReport(None, 79)
        nvml.events.put(XidReport("GPU-lost", 79))
        assert posted.next(XidReport) == XidReport("GPU-lost", 79)
    assert nvml.registered == [("GPU-0", "GPU-1")]
    assert (nvml.opened, nvml.closed) == (1, 1)


@pytest.mark.parametrize("is_event", [True, False])
def test_waits_are_long_while_nothing_happens(is_event: bool) -> None:
    """An event, or a request of the plugin, makes them short again."""
    nvml, posted = FakeNvml(), Posted()
    with watching(nvml, posted) as watcher:
        eventually(lambda: 30 in nvml.waits, "a long wait")
        assert set(nvml.waits[:QUIET_WAITS]) == {10}
        before = len(nvml.waits)
        if is_event:
            nvml.events.put(XidReport("GPU-0", 95))
        else:
            watcher.query_actions(["GPU-0"])
        eventually(lambda: 10 in nvml.waits[before:], "a short wait")


def test_failing_wait_is_retried_with_growing_pauses() -> None:
    """The pauses grow to a minute. Each pause has one message and ends with a restart of NVML."""
    nvml, posted = FakeNvml(), Posted()
    pauses: list[float] = []
    enough = threading.Event()
    for _ in range(9):
        nvml.events.put(nvml_fault())

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 9:
            enough.set()
            nvml.events.put(XidReport("GPU-0", 79))

    with watching(nvml, posted, sleep=sleep):
        assert enough.wait(SECONDS)
        failures = [posted.next(WatchFailed) for _ in range(9)]
        assert posted.next(WatchStarted) == WatchStarted({})
        assert posted.next(XidReport) == XidReport("GPU-0", 79)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert [message.times for message in failures if isinstance(message, WatchFailed)] == [
        *range(1, 10)
    ]
    assert nvml.opened == nvml.closed == 10


def test_failed_wait_reports_lost_gpus() -> None:
    """Lost GPUs are read while NVML is open, and posted once."""
    nvml, posted = FakeNvml(losses={"GPU-1": "fallen off the bus"}), Posted()
    with watching(nvml, posted, sleep=lambda seconds: None):
        nvml.events.put(nvml_fault())
        failed = posted.next(WatchFailed)
        assert isinstance(failed, WatchFailed)
        assert failed.lost == {"GPU-1": "fallen off the bus"}
        nvml.open_faults.append(nvml_fault())
        nvml.losses = {}
        nvml.events.put(nvml_fault())
        failed = posted.next(WatchFailed)
        assert isinstance(failed, WatchFailed)
        assert failed.lost == {}


def test_pause_is_reset_after_a_successful_wait() -> None:
    """A successful start of NVML does not reset the pause."""
    nvml, posted = (
        FakeNvml(open_faults=[nvml_fault(), OSError("gone"), ValueError("odd")]),
        Posted(),
    )
    pauses: list[float] = []
    with watching(nvml, posted, sleep=pauses.append):
        posted.next(WatchStarted)
        nvml.events.put(nvml_fault())
        posted.next(WatchStarted)
    assert pauses == [1, 2, 4, 1]


def test_restart_and_stop_end_a_pause() -> None:
    nvml, posted = FakeNvml(open_faults=[nvml_fault(), nvml_fault()]), Posted()
    with watching(nvml, posted) as watcher:
        for _ in range(2):
            posted.next(WatchFailed)
            watcher.restart()
        posted.next(WatchStarted)
        nvml.open_faults += [nvml_fault()] * 50
        nvml.events.put(nvml_fault())
        posted.next(WatchFailed)


def test_watch_registers_a_changed_set_of_gpus() -> None:
    """The same set of GPUs changes nothing."""
    nvml, posted = FakeNvml(), Posted()
    with watching(nvml, posted) as watcher:
        posted.next(WatchStarted)
        watcher.watch(["GPU-0", "GPU-1"])
        watcher.watch(["GPU-0", "GPU-1", "GPU-2"])
        posted.next(WatchStarted)
    assert nvml.registered == [("GPU-0", "GPU-1"), ("GPU-0", "GPU-1", "GPU-2")]


def test_suspend_shuts_nvml_down_until_resume() -> None:
    """Another thread can then use NVML alone."""
    nvml, posted = FakeNvml(), Posted()
    with watching(nvml, posted) as watcher:
        posted.next(WatchStarted)
        for turn in range(1, 4):
            assert watcher.suspend(SECONDS)
            assert nvml.opened == nvml.closed == turn
            watcher.resume()
            posted.next(WatchStarted)
        assert watcher.suspend(SECONDS)  # stop() ends a suspended watcher


def test_suspend_does_not_end_a_pause() -> None:
    """Frequent snapshots do not cause more frequent tries."""
    nvml, posted = FakeNvml(open_faults=[nvml_fault()] * 50), Posted()
    rested = threading.Event()
    with watching(nvml, posted, sleep=lambda seconds: rested.wait(SECONDS)) as watcher:
        posted.next(WatchFailed)
        for _ in range(10):
            assert watcher.suspend(SECONDS)
            watcher.resume()
        assert len(nvml.open_faults) == 49
        nvml.open_faults.clear()
        rested.set()
        posted.next(WatchStarted)


def test_queried_actions_are_posted_in_one_message() -> None:
    nvml, posted = FakeNvml(actions={"GPU-0": "none"}), Posted()
    with watching(nvml, posted) as watcher:
        watcher.query_actions(["GPU-0", "GPU-1"])
        assert posted.next(Actions) == Actions({"GPU-0": "none", "GPU-1": None})


def test_repeated_xid_is_posted_once_and_then_as_a_count() -> None:
    """Ten thousand times the same XID is one message at once and one with the count later."""
    nvml, posted = FakeNvml(), Posted()
    now = [0.0]
    with watching(nvml, posted, clock=lambda: now[0]):
        for _ in range(10_000):
            nvml.events.put(XidReport("GPU-0", 13))
        nvml.events.put(XidReport("GPU-1", 79))
        assert posted.next(XidReport) == XidReport("GPU-0", 13)
        assert posted.next(XidReport) == XidReport("GPU-1", 79)
        now[0] = 11.0
        assert posted.next(XidReport) == XidReport("GPU-0", 13, count=9_999)
        now[0] = 22.0
    assert posted.queue.empty()
    assert nvml.asked == ["GPU-0", "GPU-1", "GPU-0"]


def test_rate_limit_drops_expired_windows_and_is_bounded() -> None:
    """A window without a repetition is dropped, and the table has an end."""
    storms = RateLimit(10.0, limit=2)
    a, b, c = (XidReport("GPU-0", xid) for xid in (31, 79, 95))
    assert storms.is_first(a, 0.0)
    assert not storms.is_first(a, 1.0)
    assert storms.is_first(b, 2.0)
    assert storms.is_first(c, 2.0)
    assert storms.is_first(c, 2.0)  # the table is full: not counted
    assert storms.due(9.0) == []
    assert storms.due(12.0) == [(a, 1)]
    assert storms.due(30.0) == []
    assert storms.is_first(a, 31.0)


def test_messages_are_delivered_in_the_thread_of_the_loop() -> None:
    """Messages after the end of the loop are dropped."""

    async def main() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        taken: asyncio.Queue[threading.Thread] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        post = poster(loop, lambda message: taken.put_nowait(threading.current_thread()))
        threading.Thread(target=post, args=(WatchStarted(),)).start()
        return loop, await taken.get()

    loop, thread = asyncio.run(main())
    assert thread is threading.main_thread()
    poster(loop, lambda message: pytest.fail("the loop has exited"))(WatchStarted())
