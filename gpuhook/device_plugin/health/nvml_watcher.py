# SPDX-License-Identifier: Apache-2.0
"""The one thread that waits for NVML's events, and posts what comes to the plugin's loop.

NVML's wait blocks, so it has a thread; all that the thread knows of the plugin is `post`. A wait
that fails is tried again after 1 s, 2 s, and so on up to a minute, each time with NVML started
anew: after an upgrade of the driver only that helps.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Protocol

from gpuhook.device_plugin.health.rate_limit import Storms
from gpuhook.errors import GpuhookError, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpuhook.device_plugin.health.gpu_health import XidEvent

WAIT_MILLISECONDS = 1000
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
STORM_SECONDS = 10.0


class Unwatched(Protocol):
    """Why a GPU's events are not seen."""

    @property
    def reason(self) -> str:
        """In words."""

    @property
    def is_lost(self) -> bool:
        """Whether the GPU is lost; else it works, and just has no events."""


class EventWatch(Protocol):
    """NVML's event set."""

    def register(self, uuids: Sequence[str]) -> Mapping[str, Unwatched]:
        """Watch these GPUs; returns those that cannot be watched."""

    def wait(self, milliseconds: int) -> XidEvent | None:
        """Return the next XID, None where none came in time. Raises GpuhookError."""

    def lost(self) -> Mapping[str, str]:
        """Return the watched GPUs that are lost, with the reason."""


@dataclass(frozen=True, slots=True)
class Reported:
    """An XID: `count` times since it was told last, `action` being the GPU's recovery action."""

    uuid: str | None
    xid: int
    gpu_instance: int | None = None
    compute_instance: int | None = None
    count: int = 1
    action: str | None = None


@dataclass(frozen=True, slots=True)
class NvmlWatching:
    """NVML's events are waited for from now on, but for GPUs that have none, and for `lost` ones.

    Both with the reason.
    """

    unwatched: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failed:
    """Waiting failed, for the `times`th time in a row; the next try is in `pause` seconds.

    `lost` are the GPUs that NVML calls lost now, with the reason.
    """

    reason: str
    times: int
    pause: float
    lost: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Actions:
    """The recovery actions that were asked for, by GPU; None where the driver does not say."""

    by_gpu: Mapping[str, str | None]


Message = Reported | NvmlWatching | Failed | Actions


@dataclass(frozen=True, slots=True)
class EventSource:
    """Where the events come from: `open` starts NVML and ends it. `action` reads one GPU's."""

    open: Callable[[], AbstractContextManager[EventWatch]]
    action: Callable[[str], str | None] | None = None


def poster(loop: asyncio.AbstractEventLoop, take: Callable[[Message], None]) -> Callable[..., None]:
    """Return a `post` that calls `take` in `loop`; once the loop has ended it does nothing."""

    def post(message: Message) -> None:
        try:
            loop.call_soon_threadsafe(take, message)
        except RuntimeError:
            return

    return post


class Watcher:
    """Waits for the XIDs of GPUs until it is stopped."""

    def __init__(
        self,
        source: EventSource,
        post: Callable[[Message], None],
        *,
        milliseconds: int = WAIT_MILLISECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._source = source
        self._post = post
        self._milliseconds = milliseconds
        self._clock = clock
        self._wake = threading.Event()  # from a pause: something below has changed
        self._sleep = sleep or self._wake.wait
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._may_open = threading.Event()
        self._may_open.set()
        self._closed = threading.Event()
        self._closed.set()
        self._uuids: tuple[str, ...] = ()
        self._is_stale = False  # the watch does not have these GPUs yet
        self._to_ask: tuple[str, ...] = ()
        self._storms: Storms[Reported] = Storms(STORM_SECONDS)
        self._failures = 0
        self._lost: Mapping[str, str] = {}
        self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)

    def start(self, uuids: Sequence[str]) -> None:
        """Begin to wait for the events of these GPUs."""
        self._uuids = tuple(uuids)
        self._thread.start()

    def watch(self, uuids: Sequence[str]) -> None:
        """Wait for the events of these GPUs instead, within a wait's length. NVML starts anew."""
        with self._lock:
            if tuple(uuids) != self._uuids:
                self._uuids, self._is_stale = tuple(uuids), True
                self._wake.set()

    def restart(self) -> None:
        """Start NVML anew at once: the driver is back."""
        with self._lock:
            self._is_stale = True
            self._wake.set()

    def set_aside(self, timeout: float) -> bool:
        """Have NVML ended here until resume(), and return whether it is: it takes a wait's length.

        NVML lists the GPUs that there were when the first of a process started it, so one that was
        plugged in shows only after the last has ended it. A pause after a failure goes on.
        """
        with self._lock:
            self._may_open.clear()
            self._is_stale = True
        return self._closed.wait(timeout)

    def resume(self) -> None:
        """Wait for events again after set_aside()."""
        self._may_open.set()

    def ask(self, uuids: Sequence[str]) -> None:
        """Have the recovery actions of these GPUs read and posted, within a wait's length."""
        with self._lock:
            self._to_ask = tuple(dict.fromkeys((*self._to_ask, *uuids)))

    def stop(self) -> None:
        """Tell the thread to end, within a wait's length."""
        with self._lock:
            self._stopped.set()
            self._may_open.set()
            self._wake.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread to end; returns whether it has."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._may_open.wait()
                self._session()
            except GpuhookError as error:
                self._rest(error.message)
            except Exception as error:  # the thread must not end: no XID would be heard again
                self._rest(f"{type(error).__name__}: {printable(error)}")

    def _session(self) -> None:
        """Start NVML and wait for events until told to start anew, or to stop."""
        with self._lock:
            uuids, self._is_stale = self._uuids, False
            self._wake.clear()
            if self._stopped.is_set() or not self._may_open.is_set():
                return
            self._closed.clear()
        try:
            self._watched(uuids)
        finally:
            self._closed.set()

    def _watched(self, uuids: tuple[str, ...]) -> None:
        with self._source.open() as watch:
            unwatched = watch.register(uuids)
            is_told = False
            while not (self._stopped.is_set() or self._is_stale):
                event = self._waited(watch)
                self._failures = 0  # only now: NVML may start well and fail at each wait
                if not is_told:
                    self._post(_watching(unwatched))
                    is_told = True
                if event is not None:
                    self._take(event)
                self._tell_storms()
                self._answer()

    def _waited(self, watch: EventWatch) -> XidEvent | None:
        try:
            return watch.wait(self._milliseconds)
        except GpuhookError:
            self._lost = watch.lost()  # while NVML can still be asked
            raise

    def _take(self, event: XidEvent) -> None:
        report = Reported(event.uuid, event.xid, event.gpu_instance, event.compute_instance)
        if self._storms.is_first(report, self._clock()):
            self._tell(report, 1)

    def _tell_storms(self) -> None:
        for report, count in self._storms.due(self._clock()):
            self._tell(report, count)

    def _tell(self, report: Reported, count: int) -> None:
        self._post(
            Reported(
                report.uuid,
                report.xid,
                report.gpu_instance,
                report.compute_instance,
                count,
                self._action(report.uuid),
            )
        )

    def _answer(self) -> None:
        with self._lock:
            uuids, self._to_ask = self._to_ask, ()
        if uuids:
            self._post(Actions({uuid: self._action(uuid) for uuid in uuids}))

    def _action(self, uuid: str | None) -> str | None:
        if uuid is None or self._source.action is None:
            return None
        try:
            return self._source.action(uuid)
        except GpuhookError:  # a lost GPU cannot say
            return None

    def _rest(self, reason: str) -> None:
        """Post the failure and pause, longer each time; new GPUs, restart() and stop() end it."""
        self._failures += 1
        pause = min(FIRST_PAUSE * 2 ** min(self._failures - 1, 16), LONGEST_PAUSE)
        lost, self._lost = self._lost, {}
        self._post(Failed(reason, self._failures, pause, lost))
        self._sleep(pause)


def _watching(unwatched: Mapping[str, Unwatched]) -> NvmlWatching:
    return NvmlWatching(
        {gpu: why.reason for gpu, why in unwatched.items() if not why.is_lost},
        {gpu: why.reason for gpu, why in unwatched.items() if why.is_lost},
    )
