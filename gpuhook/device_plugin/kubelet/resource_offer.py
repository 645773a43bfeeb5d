# SPDX-License-Identifier: Apache-2.0
"""Keeps one resource offered: served on its socket, and registered with the running kubelet."""

from __future__ import annotations

import asyncio
import os
import time

from gpuhook.device_plugin.kubelet.backoff import Backoff
from gpuhook.device_plugin.kubelet.grpc_endpoint import Endpoint
from gpuhook.device_plugin.kubelet.registration import register
from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.kubelet.observer import Observer
    from gpuhook.device_plugin.kubelet.registration import KubeletSocket
    from gpuhook.device_plugin.kubelet.resource_server import ResourceServer

# The first delay is short: the kubelet creates its socket a moment before it listens.
_FIRST_DELAY, _LONGEST_DELAY = 0.005, 10.0
# Seconds between two sockets, so that a process that removes them in a loop causes no busy loop.
_MIN_SOCKET_AGE = 0.02
# Seconds for the kubelet to open a stream after a registration, and to open it again after its end.
_STREAM_TIMEOUT, _REOPEN_TIMEOUT = 5.0, 1.0
_STABLE = 60.0  # seconds after which a registration counts as successful and delays start again


class ResourceOffer:
    """Keeps `server` reachable at `path` until `end`. It acts only when it is woken."""

    def __init__(
        self, server: ResourceServer, path: str, kubelet: KubeletSocket, observer: Observer
    ) -> None:
        self.server = server
        self.path = path
        self._kubelet = kubelet
        self._observer = observer
        self._endpoint: Endpoint | None = None
        self._served_at = 0.0
        self._registered: object = None  # the kubelet that accepted this endpoint
        self._registered_at = 0.0
        self._last_kubelet: object = None  # the kubelet of the last registration
        self._call: asyncio.Task[None] | None = None
        self._reported: str | None = None  # reported once: an error code, or "skipped"
        self._ending = asyncio.Event()
        self._serving = Backoff(_FIRST_DELAY, _LONGEST_DELAY)
        self._registering = Backoff(_FIRST_DELAY, _LONGEST_DELAY)
        self._wake = asyncio.Event()
        self._tried = asyncio.Event()
        self._check: asyncio.TimerHandle | None = None
        server.unwatched = self._stream_ended
        self._task = asyncio.create_task(self._keep())

    def wake(self) -> None:
        """Check the socket and the kubelet soon.

        A registration for another socket or kubelet is cancelled: a kubelet that dials a removed
        socket takes 10 s to give up.
        """
        self._wake.set()
        if self._call is not None and not self._is_current():
            self._call.cancel()

    def replace_socket(self) -> None:
        """Serve on a new socket and register it: only then does the kubelet read the options."""
        if self._endpoint is not None:
            self._endpoint.remove()
        self.wake()

    def _is_current(self) -> bool:
        """Return whether the socket and the kubelet are those of the last registration."""
        served = self._endpoint is not None and self._endpoint.is_ours()
        return served and self._kubelet.current == self._last_kubelet

    async def tried(self) -> None:
        """Wait for the first attempt to serve."""
        await self._tried.wait()

    async def end(self, grace: float) -> None:
        """Send an empty list on the streams, wait up to `grace` seconds for calls, and stop."""
        self._ending.set()
        self._wake.set()
        if self._call is not None:
            self._call.cancel()
        await asyncio.wait({self._task})
        if self._check is not None:
            self._check.cancel()
        self.server.end()
        if self._endpoint is not None:
            await self._endpoint.close(grace)
        self._observer.stopped(self.server.name)

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._ending.is_set():
            self._wake.clear()
            try:
                delay = await self._serve()
                self._tried.set()
                delay = delay or await self._register()
            except Exception as error:  # a bug must not withdraw the resource
                self._observer.broken(self.server.name, "Register", error)
                self._tried.set()
                delay = _LONGEST_DELAY
            timer = None if delay is None else loop.call_later(delay, self._wake.set)
            await self._wake.wait()
            if timer is not None:
                timer.cancel()

    async def _serve(self) -> float | None:
        """Serve on the socket unless it is served; return the delay of the next try, or None."""
        old = self._endpoint
        if old is not None:
            if old.is_ours():
                return None
            if old.is_taken():
                return self._yield_socket()
            self._endpoint = self._registered = None
            # Its streams must end before the next registration: some kubelets take the end of an
            # older stream for the end of the newer one.
            await old.close()
            await asyncio.sleep(max(self._served_at + _MIN_SOCKET_AGE - time.monotonic(), 0))
        try:
            self._endpoint = await Endpoint.listening(self.path, self.server)
        except GpuhookError as error:
            delay = self._serving.next()
            self._observer.serving_failed(self.server.name, error, delay)
            return delay
        self._served_at = time.monotonic()
        self._serving.reset()
        self._reported = None
        self._observer.serving(self.server.name, self.path)
        return None

    def _yield_socket(self) -> float:
        """Leave the socket to a newer process: two processes would replace it for ever."""
        error = fault("GH1824", resource=self.server.name, path=self.path)
        if self._reported != error.code:
            self._reported = error.code
            self._observer.serving_failed(self.server.name, error, None)
        return _LONGEST_DELAY

    async def _register(self) -> float | None:
        """Register with the running kubelet; return the delay of the next try, or None."""
        kubelet = self._kubelet.current
        if not self._kubelet.path:
            self._report_skipped()
            return None
        if kubelet is None or kubelet == self._registered or self._ending.is_set():
            return None
        if kubelet != self._last_kubelet:
            self._last_kubelet = kubelet
            self._registering.reset()
        begun = time.perf_counter()
        try:
            if not await self._call_register():
                return None
        except GpuhookError as error:
            delay = self._registering.next()
            self._observer.registration_failed(self.server.name, error, delay)
            return delay
        self._registered = kubelet
        self._registered_at = time.monotonic()
        self._observer.registered(self.server.name, time.perf_counter() - begun)
        self._check_after(_STREAM_TIMEOUT)
        return None

    async def _call_register(self) -> bool:
        """Register; return False if the call was cancelled. Raises GH1823."""
        name, endpoint = self.server.name, os.path.basename(self.path)
        call = asyncio.create_task(
            register(self._kubelet.path, name, endpoint, self.server.options())
        )
        self._call = call
        try:
            await asyncio.wait({call})
        finally:
            self._call = None
            call.cancel()
        if call.cancelled():
            return False
        call.result()
        return True

    def _report_skipped(self) -> None:
        if self._reported != "skipped":
            self._reported = "skipped"
            self._observer.registration_skipped(self.server.name)

    def _stream_ended(self) -> None:
        """Check for a new stream soon: a kubelet may drop a plugin without a restart."""
        if self._registered is not None:
            self._check_after(_REOPEN_TIMEOUT)

    def _check_after(self, seconds: float) -> None:
        if time.monotonic() - self._registered_at > _STABLE:
            self._registering.reset()
        if self._check is not None:
            self._check.cancel()
        loop = asyncio.get_running_loop()
        delay = max(seconds, self._registering.next())
        self._check = loop.call_later(delay, self._check_streams)

    def _check_streams(self) -> None:
        known = self._registered
        if (
            self._ending.is_set()
            or self.server.streams
            or known is None
            or known != self._kubelet.current
        ):
            return
        self._registered = None
        self._observer.unwatched(self.server.name)
        self._wake.set()
