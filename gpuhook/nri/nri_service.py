# SPDX-License-Identifier: Apache-2.0
"""The methods of NRI's Plugin service: what the runtime asks, and the answer in time.

The runtime waits for a limited time (2 seconds by default). Then it creates the container without
an answer and drops the plugin. So a container that may have requested devices gets an error before.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import TypeVar

from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot.engine_log import as_fault
from gpuhook.host.logs import logger
from gpuhook.nri import injection, nri_counters, start_check
from gpuhook.nri.runtime_support import CDI, EXPANDED, UNSUPPORTED, RuntimeSupport, support_of
from gpuhook.nri.wire import nri_messages, ttrpc
from gpuhook.nri.wire.protobuf_wire import WireError
from gpuhook.nri.wire.ttrpc import CallError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuhook.nri.injection import Decision, Injector
    from gpuhook.nri.nri_counters import NriCounters
    from gpuhook.nri.start_check import Synchronized
    from gpuhook.nri.wire.ttrpc import Method

T = TypeVar("T")

LONGEST = 1.5  # seconds for an answer
_SHARE = 0.75  # of the runtime's own limit


class NriService:
    """One plugin, over all its connections. `is_expanded` chooses expanded adjustments always."""

    def __init__(
        self, injector: Injector, counters: NriCounters, *, is_expanded: bool = False
    ) -> None:
        self._injector = injector
        self._counters = counters
        self._is_expanded = is_expanded
        self._support = RuntimeSupport(UNSUPPORTED)
        self._limit = LONGEST
        self._busy = Lock()  # while a container is decided
        self._seen: Synchronized = start_check.Synchronized()
        self._reported: set[str] = set()
        self.is_synchronized = self.is_shut_down = False

    @property
    def services(self) -> Mapping[str, Mapping[str, Method]]:
        """The methods by service and name. The runtime calls no other one for this mask."""
        methods: dict[str, Method] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "CreateContainer": self._create,
            "Shutdown": self._shut_down,
        }
        return {nri_messages.PLUGIN_SERVICE: methods}

    def disconnect(self) -> None:
        """Forget the state of a connection."""
        self.is_synchronized = self.is_shut_down = False
        self._seen = start_check.Synchronized()

    def _configure(self, data: memoryview, _limit: float) -> bytes:
        facts = nri_messages.RuntimeFacts(data)
        self._support = support = support_of(facts.runtime, facts.version)
        timeout = facts.request_timeout
        self._limit = min(LONGEST, timeout * _SHARE) if timeout else LONGEST
        name = f"{facts.runtime} {facts.version}"
        if support.mode == UNSUPPORTED:
            error = fault("GH2703", runtime=name, reason=support.reason)
            logger().error(error.message, code=error.code, hint=error.hint)
        mode = EXPANDED if self._is_expanded and support.mode == CDI else support.mode
        reason = {"reason": support.reason} if support.reason else {}
        logger().info("configured", runtime=name, mode=mode, **reason)
        return nri_messages.subscription(nri_messages.CREATE_CONTAINER)

    def _synchronize(self, data: memoryview, _limit: float) -> bytes:
        """Take a part of the pods and containers; after the last one, report who lacks devices."""
        more = self._seen.add(data, self._injector.settings.marks)
        if not more:
            seen, self._seen = self._seen, start_check.Synchronized()
            self.is_synchronized = True
            if self._support.mode != UNSUPPORTED:
                Thread(target=self._report, args=(seen,), name="gpuhook-check", daemon=True).start()
        return nri_messages.synchronization(more=more)

    def _report(self, seen: Synchronized) -> None:
        """Log a warning for each container that requested devices and started without."""
        for pod, container in start_check.without_devices(seen, self._injector):
            if container.identity in self._reported:
                continue
            self._reported.add(container.identity)
            self._counters.count("started_without")
            error = fault("GH2707", pod=f"{pod.namespace}/{pod.name}", container=container.name)
            found = injection.names(pod, container)
            logger().warning(error.message, code=error.code, hint=error.hint, **found)

    def _shut_down(self, _data: memoryview, _limit: float) -> bytes:
        self.is_shut_down = True
        return b""

    def _create(self, data: memoryview, limit: float) -> bytes:
        """Answer for a container; raises CallError for one that must not start."""
        began = time.monotonic()
        seconds = min(self._limit, limit * _SHARE) if limit else self._limit
        settings = self._injector.settings
        if not settings.is_current():
            with suppress(GpuhookError):  # late: so is the container if it may request devices
                self._in_time(lambda _: settings.refresh(), began, began + seconds)
        raw = bytes(data)
        if self._support.mode == UNSUPPORTED or not any(mark in raw for mark in settings.marks):
            self._counters.create(nri_counters.UNCHANGED, time.monotonic() - began, is_read=False)
            return b""
        outcome, response = nri_counters.REFUSED, b""
        try:
            decision = self._decide(memoryview(raw), began, began + seconds)
            response = decision.response
            outcome = nri_counters.INJECTED if decision.mode else nri_counters.UNCHANGED
        finally:
            self._counters.create(outcome, time.monotonic() - began, is_read=True)
        return response

    def _decide(self, data: memoryview, began: float, end: float) -> Decision:
        facts: dict[str, object] = {}
        is_cdi = self._support.mode == CDI and not self._is_expanded
        try:
            pod, container = injection.read_request(data)
            facts = {**injection.names(pod, container)}
            injector = self._injector
            if injector.settings.trouble is not None:  # what failed may work now
                self._in_time(lambda _: injector.settings.refresh(), began, end)
            request = injector.request(pod, container, self._support)
            if request.is_empty:  # a driver that hangs for others does not delay it
                decision = injector.refused(request)
            else:
                decide = partial(injector.decide, request, is_cdi=is_cdi)
                decision = self._in_time(lambda late: decide(is_late=late), began, end)
        except Exception as error:
            is_text = isinstance(error, (WireError, UnicodeError))
            found = fault("GH2708", reason=error) if is_text else as_fault(error, "the host")
            _log(nri_counters.REFUSED, began, code=found.code, reason=found.message, **facts)
            text = f"gpuhook: {found.code}: {found.message} ({found.hint})"
            raise CallError(ttrpc.UNKNOWN, text) from error
        outcome = nri_counters.INJECTED if decision.mode else nri_counters.UNCHANGED
        more = {"devices": list(decision.devices), "mode": decision.mode} if decision.mode else {}
        _log(outcome, began, **facts, **more, source=decision.source)
        return decision

    def _in_time(self, call: Callable[[Callable[[], bool]], T], began: float, end: float) -> T:
        """Return what `call` returns, made in a thread; raises what it raises, GH2706 after `end`.

        `call` gets a function that returns whether it is late. One call is made at a time. The
        container's time `began` earlier.
        """
        answers: SimpleQueue[tuple[T, None] | tuple[None, Exception]] = SimpleQueue()
        late = Event()

        def work() -> None:
            if not self._busy.acquire(timeout=max(0.0, end - time.monotonic())):
                return
            try:
                answers.put((call(late.is_set), None))
            except Exception as error:  # the caller raises it
                answers.put((None, error))
            finally:
                self._busy.release()

        Thread(target=work, name="gpuhook-create", daemon=True).start()
        try:
            result, error = answers.get(timeout=max(0.0, end - time.monotonic()))
        except Empty:
            late.set()
            raise fault("GH2706", seconds=f"{end - began:.2g}") from None
        if error is not None:
            raise error
        return result  # type: ignore[return-value] # None only if the call returned it


def _log(outcome: str, began: float, **facts: object) -> None:
    milliseconds = round((time.monotonic() - began) * 1000, 2)
    shown = {key: value for key, value in facts.items() if value}
    logger().info(outcome, milliseconds=milliseconds, **shown)
