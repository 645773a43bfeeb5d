# SPDX-License-Identifier: Apache-2.0
"""Keeps all offered resources served in the plugin directory.

inotify reports sockets that appear or go; a check every ten seconds covers lost events.
"""

from __future__ import annotations

import asyncio
import os

from gpuhook.device_plugin.kubelet.directory_watch import DirectoryWatch
from gpuhook.device_plugin.kubelet.grpc_endpoint import socket_name
from gpuhook.device_plugin.kubelet.registration import KubeletSocket
from gpuhook.device_plugin.kubelet.resource_offer import ResourceOffer
from gpuhook.device_plugin.kubelet.resource_server import ResourceServer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.kubelet.kubelet_answers import KubeletAnswers
    from gpuhook.device_plugin.kubelet.observer import Observer
    from gpuhook.device_plugin.offer.offered_devices import Resource

_INTERVAL = 10.0  # seconds
_INTERVAL_WITHOUT_INOTIFY = 1.0
_GRACE = 0.5


class PluginSockets:
    """The resources of a plugin directory. `kubelet_socket` "": served, but not registered.

    All methods must be called in the same event loop.
    """

    def __init__(
        self,
        directory: str,
        kubelet_socket: str,
        answers: KubeletAnswers,
        observer: Observer,
        pre_start: bool = False,
    ) -> None:
        """Raise GH1822 if the directory's path is too long for a socket in it."""
        self.directory = os.path.abspath(directory)
        socket_name("gpu", self.directory)
        self._kubelet = KubeletSocket(os.path.abspath(kubelet_socket) if kubelet_socket else "")
        self._answers = answers
        self._observer = observer
        self._pre_start = pre_start
        self._offerings: dict[str, ResourceOffer] = {}
        self._watch: DirectoryWatch | None = None
        self._interval = _INTERVAL
        self._timer: asyncio.TimerHandle | None = None
        self._offers = asyncio.Lock()

    def require_pre_start(self, required: bool) -> None:
        """Set whether the kubelet calls PreStartContainer; a change is registered again."""
        if required == self._pre_start:
            return
        self._pre_start = required
        for offering in self._offerings.values():
            offering.server.pre_start = required
            offering.replace_socket()

    async def offer(self, resources: tuple[Resource, ...], unhealthy: Mapping[str, str]) -> None:
        """Offer exactly these resources; `unhealthy` has reasons by the UUID of a device.

        Unchanged resources are left alone. Returns after the first attempt to serve each resource;
        failures go to the observer and are retried. Registration continues in the background.
        """
        async with self._offers:
            self._start_watch()
            offered = {resource.name: resource for resource in resources}
            gone = [name for name in self._offerings if name not in offered]
            await asyncio.gather(*(self._withdraw(name) for name in gone))
            for name, resource in offered.items():
                if name not in self._offerings:
                    self._offerings[name] = self._new(resource, unhealthy)
                else:
                    self._offerings[name].server.publish(resource, unhealthy)
            await asyncio.gather(*(offering.tried() for offering in self._offerings.values()))

    async def stop(self) -> None:
        """Send empty lists, wait shortly for calls, stop, and remove the sockets."""
        async with self._offers:
            if self._timer is not None:
                self._timer.cancel()
            if self._watch is not None:
                self._watch.close()
            self._timer = self._watch = None
            await asyncio.gather(*(self._withdraw(name) for name in list(self._offerings)))

    def _new(self, resource: Resource, unhealthy: Mapping[str, str]) -> ResourceOffer:
        taken = {os.path.basename(offering.path) for offering in self._offerings.values()}
        path = os.path.join(self.directory, socket_name(resource.name, self.directory, taken))
        server = ResourceServer(resource, self._answers, self._observer, pre_start=self._pre_start)
        server.publish(resource, unhealthy)
        return ResourceOffer(server, path, self._kubelet, self._observer)

    async def _withdraw(self, name: str) -> None:
        await self._offerings.pop(name).end(_GRACE)

    def _start_watch(self) -> None:
        if self._timer is not None:
            return
        directories = {self.directory}
        if self._kubelet.path:
            directories.add(os.path.dirname(self._kubelet.path))
        try:
            self._watch = DirectoryWatch(directories, self._on_change)
        except OSError as error:
            self._report_watch_failure(error)
        self._kubelet.look(made=False)
        self._report_absent_kubelet()
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._check)

    def _report_watch_failure(self, error: OSError) -> None:
        """Report missing events once, and check each second instead."""
        if self._interval != _INTERVAL_WITHOUT_INOTIFY:
            self._interval = _INTERVAL_WITHOUT_INOTIFY
            self._observer.watch_failed(error)

    def _on_change(self, path: str | None, made: bool) -> None:
        """Wake the resources of a changed socket; `path` None: anything may have changed."""
        if path is None or path == self._kubelet.path:
            if self._kubelet.look(made=made):
                self._report_absent_kubelet()
                path = None
            elif path is not None:
                return
        for offering in self._offerings.values():
            if path in {None, offering.path}:
                offering.wake()

    def _report_absent_kubelet(self) -> None:
        if self._kubelet.path and self._kubelet.current is None:
            self._observer.kubelet_absent(self._kubelet.path)

    def _check(self) -> None:
        """Check all sockets without an event."""
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._check)
        if self._watch is not None:
            try:
                self._watch.renew()
            except OSError as error:
                self._report_watch_failure(error)
        if self._kubelet.look(made=False):
            self._report_absent_kubelet()
        for offering in self._offerings.values():
            offering.wake()
