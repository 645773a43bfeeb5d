# SPDX-License-Identifier: Apache-2.0
"""One resource kept on offer: served on its socket, and registered with the kubelet there is."""

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

# The first delay is short: the kubelet's socket is there a moment before somebody listens on it.
_FIRST_DELAY, _LONGEST_DELAY = 0.005, 10.0
# Seconds from one socket to the next, so that who removes it in a loop makes no busy loop of us.
_REST = 0.02
# Seconds that the kubelet has to begin watching once it was registered with, and to come back when
# it stopped; and how long a registration has to hold for the next trouble to be a new one.
_WATCHES_WITHIN, _COMES_BACK_WITHIN, _HOLDS = 5.0, 1.0, 60.0


class ResourceOffer:
    """Keeps `server` reachable at `path` until `end`. It acts when it is woken, and else waits."""

    def __init__(
        self, server: ResourceServer, path: str, kubelet: KubeletSocket, observer: Observer
    ) -> None:
        self.server = server
        self.path = path
        self._kubelet = kubelet
        self._observer = observer
        self._endpoint: Endpoint | None = None
        self._served_at = 0.0
        self._registered: object = None  # the kubelet that knows of this endpoint
        self._registered_at = 0.0
        self._asked: object = None  # the kubelet that was asked last
        self._call: asyncio.Task[None] | None = None
        self._told: str | None = None  # what is told once: a code, or "skipped"
        self._ending = asyncio.Event()
        self._serving = Backoff(_FIRST_DELAY, _LONGEST_DELAY)
        self._registering = Backoff(_FIRST_DELAY, _LONGEST_DELAY)
        self._wake = asyncio.Event()
        self._tried = asyncio.Event()
        self._check: asyncio.TimerHandle | None = None
        server.unwatched = self._stream_ended
        self._task = asyncio.create_task(self._keep())

    def wake(self) -> None:
        """Look whether anything is to be done, soon.

        A registration that is pointless by now is given up: a kubelet that dials a socket which
        is gone takes 10 s to notice.
        """
        self._wake.set()
        if self._call is not None and not self._is_current():
            self._call.cancel()

    def serve_anew(self) -> None:
        """Serve on a new socket, and register that: the kubelet asks for options only then."""
        if self._endpoint is not None:
            self._endpoint.remove()
        self.wake()

    def _is_current(self) -> bool:
        """Return whether the socket is ours, and the kubelet the one that was asked last."""
        served = self._endpoint is not None and self._endpoint.is_ours()
        return served and self._kubelet.current == self._asked

    async def tried(self) -> None:
        """Wait until serving was tried once."""
        await self._tried.wait()

    async def end(self, grace: float) -> None:
        """Send an empty list to the streams, give calls `grace` seconds to end, and stop."""
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
            except Exception as error:  # a resource is not lost for one fault of ours
                self._observer.broken(self.server.name, "Register", error)
                self._tried.set()
                delay = _LONGEST_DELAY
            timer = None if delay is None else loop.call_later(delay, self._wake.set)
            await self._wake.wait()
            if timer is not None:
                timer.cancel()

    async def _serve(self) -> float | None:
        """Serve on the socket if that is not so; return when to try again, None if it is."""
        old = self._endpoint
        if old is not None:
            if old.is_ours():
                return None
            if old.is_taken():
                return self._taken()
            self._endpoint = self._registered = None
            # Its streams end before the kubelet hears of the next: some kubelets take the end of
            # an older stream for the end of the newer one.
            await old.close()
            await asyncio.sleep(max(self._served_at + _REST - time.monotonic(), 0))
        try:
            self._endpoint = await Endpoint.listening(self.path, self.server.name, self.server)
        except GpuhookError as error:
            delay = self._serving.next()
            self._observer.serving_failed(self.server.name, error, delay)
            return delay
        self._served_at = time.monotonic()
        self._serving.reset()
        self._told = None
        self._observer.serving(self.server.name, self.path)
        return None

    def _taken(self) -> float:
        """Leave the socket to a newer process: two that took it from each other would not end."""
        error = fault("GH1824", resource=self.server.name, path=self.path)
        if self._told != error.code:
            self._told = error.code
            self._observer.serving_failed(self.server.name, error, None)
        return _LONGEST_DELAY

    async def _register(self) -> float | None:
        """Register with the kubelet there is; return when to try again, None for not at all."""
        kubelet = self._kubelet.current
        if not self._kubelet.path:
            self._skip()
            return None
        if kubelet is None or kubelet == self._registered or self._ending.is_set():
            return None
        if kubelet != self._asked:
            self._asked = kubelet
            self._registering.reset()
        begun = time.perf_counter()
        try:
            if not await self._registration():
                return None
        except GpuhookError as error:
            delay = self._registering.next()
            self._observer.registration_failed(self.server.name, error, delay)
            return delay
        self._registered = kubelet
        self._registered_at = time.monotonic()
        self._observer.registered(self.server.name, time.perf_counter() - begun)
        self._check_after(_WATCHES_WITHIN)
        return None

    async def _registration(self) -> bool:
        """Register; return whether that was not given up on the way. Raises GH1823."""
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

    def _skip(self) -> None:
        if self._told != "skipped":
            self._told = "skipped"
            self._observer.registration_skipped(self.server.name)

    def _stream_ended(self) -> None:
        """See whether the kubelet comes back: it may have dropped us without a restart."""
        if self._registered is not None:
            self._check_after(_COMES_BACK_WITHIN)

    def _check_after(self, seconds: float) -> None:
        if time.monotonic() - self._registered_at > _HOLDS:
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
