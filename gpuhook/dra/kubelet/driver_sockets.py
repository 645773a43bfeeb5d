# SPDX-License-Identifier: Apache-2.0
"""Keeps a driver served and registered: its service's socket, and then its registration's socket.

The kubelet registers a driver whose socket appears in its directory, and forgets one whose socket
goes. A kubelet that starts dials all sockets there. So a restart needs no action, and a removed
socket is served again, in the order of the start.
"""

from __future__ import annotations

import asyncio
import os

from gpuhook.device_plugin.kubelet.backoff import Backoff
from gpuhook.device_plugin.kubelet.directory_watch import DirectoryWatch
from gpuhook.device_plugin.kubelet.grpc_endpoint import Endpoint
from gpuhook.dra.kubelet import socket_paths
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.error_text import worded
from gpuhook.host.logs import logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.kubelet.grpc_endpoint import Served
    from gpuhook.dra.kubelet.socket_paths import SocketPaths

_INTERVAL = 10.0  # seconds between two checks without an event
_INTERVAL_WITHOUT_INOTIFY = 1.0
_FIRST_DELAY, _LONGEST_DELAY = 0.02, 10.0
_MODE = 0o600  # the kubelet is root
_GRACE = 10.0  # seconds for calls to end; Kubernetes gives a pod thirty


class DriverSockets:
    """The sockets of one driver. All methods must be called in the same event loop."""

    def __init__(self, paths: SocketPaths, service: Served, registration: Served) -> None:
        self.paths = paths
        self._served = {paths.service: service, paths.registration: registration}
        self._endpoints: dict[str, Endpoint] = {}
        self._wake = asyncio.Event()
        self._ending = False
        self._reported = ""
        self._backoff = Backoff(_FIRST_DELAY, _LONGEST_DELAY)
        self._task: asyncio.Task[None] | None = None
        self._watch: DirectoryWatch | None = None

    async def start(self) -> None:
        """Remove dead sockets, and serve from now on; failures are logged and retried."""
        socket_paths.remove_dead(self.paths, self._served[self.paths.service].name)
        try:
            self._watch = DirectoryWatch(map(os.path.dirname, self._served), self._on_change)
        except OSError as error:
            logger().warning("inotify is not available, checking every second", reason=str(error))
        self._task = asyncio.create_task(self._keep(await self._serve_all()))

    async def end(self) -> None:
        """Remove the registration, wait for calls, and stop."""
        self._ending = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait({self._task})
        if self._watch is not None:
            self._watch.close()
        registration = self._endpoints.pop(self.paths.registration, None)
        if registration is not None:
            await registration.close()
        service = self._endpoints.pop(self.paths.service, None)
        if service is not None:
            await service.close(_GRACE)

    def _on_change(self, path: str | None, _made: bool) -> None:
        if path is None or path in self._served:
            self._wake.set()

    async def _keep(self, delay: float) -> None:
        loop = asyncio.get_running_loop()
        while not self._ending:
            timer = loop.call_later(delay, self._wake.set)
            await self._wake.wait()
            timer.cancel()
            self._wake.clear()
            self._renew_watch()
            try:
                delay = await self._serve_all()
            except Exception as error:  # a bug must not end the driver
                logger().error("failed", driver=self._name, exc_info=error)
                delay = _LONGEST_DELAY

    def _renew_watch(self) -> None:
        if self._watch is not None:
            try:
                self._watch.renew()
            except OSError as error:
                logger().debug("inotify is not available", reason=str(error))

    @property
    def _name(self) -> str:
        return self._served[self.paths.service].name

    async def _serve_all(self) -> float:
        """Serve each socket that is not served; return the delay until the next check."""
        if self._ending:
            return 0
        service = self._endpoints.get(self.paths.service)
        if service is not None and not service.is_ours():
            registration = self._endpoints.pop(self.paths.registration, None)
            if registration is not None:
                await registration.close()
        try:
            os.makedirs(self.paths.directory, 0o750, exist_ok=True)
            for path, served in self._served.items():
                await self._serve(path, served)
        except (GpuhookError, OSError) as error:
            return self._report(worded(error))
        self._backoff.reset()
        self._reported = ""
        return _INTERVAL_WITHOUT_INOTIFY if self._watch is None else _INTERVAL

    async def _serve(self, path: str, served: Served) -> None:
        """Serve on a socket unless it is served; raises GH1821, and GH1824 for a newer process."""
        old = self._endpoints.get(path)
        if old is not None and old.is_ours():
            return
        if old is not None:
            if old.is_taken():  # two processes would replace it for ever
                raise fault("GH1824", resource=served.name, path=path)
            del self._endpoints[path]
            await old.close()
        self._endpoints[path] = await Endpoint.listening(path, served, _MODE)
        logger().info("serving", driver=served.name, socket=path)

    def _report(self, error: GpuhookError) -> float:
        """Log an error once, and return the delay of the next try."""
        if error.message != self._reported:
            self._reported = error.message
            logger().warning(error.message, driver=self._name, code=error.code, hint=error.hint)
        return self._backoff.next()
