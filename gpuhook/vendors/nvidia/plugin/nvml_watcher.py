# SPDX-License-Identifier: Apache-2.0
"""Waits for NVML's events in a thread, and posts them to the plugin's loop.

NVML's wait blocks, and an event ends it. What the plugin requests happens after the current wait,
which is short while something happens; an idle plugin should seldom wake up. After a failure NVML
is restarted, with pauses of 1 s, 2 s, and so on up to a minute: after an upgrade of the driver only
a restart of NVML helps.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace

from gpuhook.errors import GpuhookError, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpuhook.vendors.nvidia.nvml.nvml_events import (
        NvmlEventWatch,
        NvmlXidEvent,
        UnwatchedDevices,
    )

WAIT_MILLISECONDS = 1000
QUIET_WAITS, QUIET_FACTOR = 30, 3  # after so many waits without an event, one lasts this times
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds
REPORT_WINDOW = 10.0  # seconds in which equal XIDs are counted together


@dataclass(frozen=True, slots=True)
class XidReport:
    """An XID, `count` times since the last report. `action` is the GPU's recovery action."""

    uuid: str | None
    xid: int
    gpu_instance: int | None = None
    compute_instance: int | None = None
    count: int = 1
    action: str | None = None


@dataclass(frozen=True, slots=True)
class WatchStarted:
    """The wait has started. Reasons, by UUID, of GPUs without events, and of lost ones."""

    unwatched: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WatchFailed:
    """The wait failed, for the `times`th time in a row; the next try is in `pause` seconds.

    `lost` has the reasons of lost GPUs, by UUID.
    """

    reason: str
    times: int
    pause: float
    lost: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Actions:
    """The requested recovery actions, by GPU; None if the driver does not report one."""

    by_gpu: Mapping[str, str | None]


Message = XidReport | WatchStarted | WatchFailed | Actions


def poster(loop: asyncio.AbstractEventLoop, take: Callable[[Message], None]) -> Callable[..., None]:
    """Return a function that calls `take` in `loop`, and has no effect after the loop's end."""

    def post(message: Message) -> None:
        try:
            loop.call_soon_threadsafe(take, message)
        except RuntimeError:
            return

    return post


class RateLimit:
    """Limits repeated reports: the first one passes, then one with a count per time window.

    Times are those of a monotonic clock.
    """

    def __init__(self, seconds: float, limit: int = 4096) -> None:
        self._seconds = seconds
        self._limit = limit
        self._windows: dict[XidReport, tuple[float, int]] = {}

    def is_first(self, key: XidReport, now: float) -> bool:
        """Return whether to report `key` now; else it is counted, and due() returns the count.

        Beyond the limit of keys, new ones are reported each time.
        """
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) < self._limit:
                self._windows[key] = (now + self._seconds, 0)
            return True
        end, count = window
        self._windows[key] = (end, count + 1)
        return False

    def due(self, now: float) -> list[tuple[XidReport, int]]:
        """Return the keys counted in windows that have ended, with their counts."""
        reports = []
        for key, (end, count) in list(self._windows.items()):
            if end > now:
                continue
            if count:
                reports.append((key, count))
                self._windows[key] = (now + self._seconds, 0)
            else:
                del self._windows[key]
        return reports


class Watcher:
    """Waits for XIDs until it is stopped.

    `opened` starts and ends NVML, `action` returns the recovery action of the GPU with a UUID.
    """

    def __init__(
        self,
        opened: Callable[[], AbstractContextManager[NvmlEventWatch]],
        action: Callable[[str], str | None],
        post: Callable[[Message], None],
        *,
        milliseconds: int = WAIT_MILLISECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._opened = opened
        self._read_action = action
        self._post = post
        self._milliseconds = milliseconds
        self._clock = clock
        self._wake = threading.Event()  # ends a pause
        self._sleep = sleep or self._wake.wait
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._may_open = threading.Event()
        self._may_open.set()
        self._closed = threading.Event()
        self._closed.set()
        self._uuids: tuple[str, ...] = ()
        self._is_stale = False  # the session must be restarted
        self._to_query: tuple[str, ...] = ()
        self._limit = RateLimit(REPORT_WINDOW)
        self._quiet = 0  # waits without an event
        self._failures = 0
        self._lost: Mapping[str, str] = {}
        self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)

    def start(self, uuids: Sequence[str]) -> None:
        self._uuids = tuple(uuids)
        self._thread.start()

    def watch(self, uuids: Sequence[str]) -> None:
        """Watch these GPUs instead. NVML is restarted after the current wait."""
        with self._lock:
            if tuple(uuids) != self._uuids:
                self._uuids, self._is_stale = tuple(uuids), True
                self._wake.set()

    def restart(self) -> None:
        """Restart NVML at once, since the driver answers again."""
        with self._lock:
            self._is_stale = True
            self._wake.set()

    def suspend(self, timeout: float) -> bool:
        """End NVML until resume(), after the current wait; returns whether it has exited.

        NVML lists the GPUs that existed when it was first initialized in the process. A new GPU
        appears only after every user in the process has shut it down. A pause is not interrupted.
        """
        with self._lock:
            self._may_open.clear()
            self._is_stale = True
        return self._closed.wait(timeout)

    def resume(self) -> None:
        """Wait for events again after suspend()."""
        self._may_open.set()

    def query_actions(self, uuids: Sequence[str]) -> None:
        """Read and post the recovery actions of these GPUs after the current wait."""
        with self._lock:
            self._to_query = tuple(dict.fromkeys((*self._to_query, *uuids)))

    def stop(self) -> None:
        """End the thread after the current wait."""
        with self._lock:
            self._stopped.set()
            self._may_open.set()
            self._wake.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread's end; returns whether it has exited."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._may_open.wait()
                self._session()
            except GpuhookError as error:
                self._pause(error.message)
            except Exception as error:  # without the thread no XID would be reported again
                self._pause(f"{type(error).__name__}: {printable(error)}")

    def _session(self) -> None:
        """Start NVML and wait for events until a restart or the end is requested."""
        with self._lock:
            uuids, self._is_stale = self._uuids, False
            self._wake.clear()
            if self._stopped.is_set() or not self._may_open.is_set():
                return
            self._closed.clear()
        try:
            self._wait_for_events(uuids)
        finally:
            self._closed.set()

    def _wait_for_events(self, uuids: tuple[str, ...]) -> None:
        with self._opened() as watch:
            unwatched = watch.register(uuids)
            is_posted, self._quiet = False, 0
            while not (self._stopped.is_set() or self._is_stale):
                event = self._wait(watch)
                self._failures = 0  # only now: NVML may start and fail at each wait
                if not is_posted:
                    self._post(_watch_started(unwatched))
                    is_posted = True
                if event is not None:
                    self._on_event(event)
                self._post_counted()
                self._post_actions()

    def _wait(self, watch: NvmlEventWatch) -> NvmlXidEvent | None:
        factor = QUIET_FACTOR if self._quiet >= QUIET_WAITS else 1
        self._quiet += 1
        try:
            return watch.wait(self._milliseconds * factor)
        except GpuhookError:
            self._lost = watch.lost()  # while NVML still answers
            raise

    def _on_event(self, event: NvmlXidEvent) -> None:
        self._quiet = 0
        report = XidReport(event.uuid, event.xid, event.gpu_instance, event.compute_instance)
        if self._limit.is_first(report, self._clock()):
            self._post_report(report, 1)

    def _post_counted(self) -> None:
        for report, count in self._limit.due(self._clock()):
            self._post_report(report, count)

    def _post_report(self, report: XidReport, count: int) -> None:
        self._post(replace(report, count=count, action=self._action(report.uuid)))

    def _post_actions(self) -> None:
        with self._lock:
            uuids, self._to_query = self._to_query, ()
        if uuids:
            self._quiet = 0
            self._post(Actions({uuid: self._action(uuid) for uuid in uuids}))

    def _action(self, uuid: str | None) -> str | None:
        if uuid is None:
            return None
        try:
            return self._read_action(uuid)
        except GpuhookError:  # a lost GPU does not answer
            return None

    def _pause(self, reason: str) -> None:
        """Post the failure and pause, longer each time; new GPUs, restart() and stop() end it."""
        self._failures += 1
        pause = min(FIRST_PAUSE * 2 ** min(self._failures - 1, 16), LONGEST_PAUSE)
        lost, self._lost = self._lost, {}
        self._post(WatchFailed(reason, self._failures, pause, lost))
        self._sleep(pause)


def _watch_started(unwatched: Mapping[str, UnwatchedDevices]) -> WatchStarted:
    return WatchStarted(
        {gpu: why.reason for gpu, why in unwatched.items() if not why.is_lost},
        {gpu: why.reason for gpu, why in unwatched.items() if why.is_lost},
    )
