# SPDX-License-Identifier: Apache-2.0
"""All resources on offer in a plugin directory, kept there whatever happens to it.

Nothing runs while nothing changes: inotify tells of sockets that come and go, and a look every ten
seconds is the net below it.
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

    from gpuhook.device_plugin.kubelet.observer import Observer
    from gpuhook.device_plugin.kubelet.resource_server import Answers
    from gpuhook.device_plugin.offer.offered_devices import Resource

_LOOKS_EVERY = 10.0
_LOOKS_EVERY_BLIND = 1.0  # without inotify
_GRACE = 0.5


class Serving:
    """The resources of a plugin directory. `kubelet_socket` "" means: served, not registered.

    All of it runs in the event loop that calls `offer`.
    """

    def __init__(
        self,
        directory: str,
        kubelet_socket: str,
        answers: Answers,
        observer: Observer,
        pre_start: bool = False,
    ) -> None:
        """Raise GH1822 if the directory's path is too long for sockets."""
        self.directory = os.path.abspath(directory)
        socket_name("gpu", self.directory)
        self._kubelet = KubeletSocket(os.path.abspath(kubelet_socket) if kubelet_socket else "")
        self._answers = answers
        self._observer = observer
        self._pre_start = pre_start
        self._offerings: dict[str, ResourceOffer] = {}
        self._watch: DirectoryWatch | None = None
        self._interval = _LOOKS_EVERY
        self._timer: asyncio.TimerHandle | None = None
        self._offers = asyncio.Lock()

    def require_pre_start(self, wanted: bool) -> None:
        """Have the kubelet ask before each start, or not: if that is new, by registering anew."""
        if wanted == self._pre_start:
            return
        self._pre_start = wanted
        for offering in self._offerings.values():
            offering.server.pre_start = wanted
            offering.serve_anew()

    async def offer(self, resources: tuple[Resource, ...], unhealthy: Mapping[str, str]) -> None:
        """Offer these resources and no others; `unhealthy` are reasons by the UUID of a device.

        What did not change is not touched. Returns when each is served, or could not be at once:
        then it is tried again, and the observer knows why. Registering goes on meanwhile.
        """
        async with self._offers:
            self._begin()
            wanted = {resource.name: resource for resource in resources}
            gone = [name for name in self._offerings if name not in wanted]
            await asyncio.gather(*(self._withdraw(name) for name in gone))
            for name, resource in wanted.items():
                if name not in self._offerings:
                    self._offerings[name] = self._new(resource, unhealthy)
                else:
                    self._offerings[name].server.publish(resource, unhealthy)
            await asyncio.gather(*(offering.tried() for offering in self._offerings.values()))

    async def stop(self) -> None:
        """Send empty lists, let calls end for a moment, stop, and remove the sockets."""
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

    def _begin(self) -> None:
        """Begin to watch, once."""
        if self._timer is not None:
            return
        directories = {self.directory}
        if self._kubelet.path:
            directories.add(os.path.dirname(self._kubelet.path))
        try:
            self._watch = DirectoryWatch(directories, self._changed)
        except OSError as error:
            self._blind(error)
        self._kubelet.look(made=False)
        self._miss_kubelet()
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._look)

    def _blind(self, error: OSError) -> None:
        """Go on without being told, or not of everything."""
        if self._interval != _LOOKS_EVERY_BLIND:
            self._interval = _LOOKS_EVERY_BLIND
            self._observer.watch_failed(error)

    def _changed(self, path: str | None, made: bool) -> None:
        """Wake who is concerned: a socket came or went, or (None) anything may have happened."""
        if path is None or path == self._kubelet.path:
            if self._kubelet.look(made=made):
                self._miss_kubelet()
                path = None
            elif path is not None:
                return
        for offering in self._offerings.values():
            if path in {None, offering.path}:
                offering.wake()

    def _miss_kubelet(self) -> None:
        if self._kubelet.path and self._kubelet.current is None:
            self._observer.kubelet_absent(self._kubelet.path)

    def _look(self) -> None:
        """Look at everything without being told to: events can be lost in ways unknown."""
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._look)
        if self._watch is not None:
            try:
                self._watch.renew()
            except OSError as error:
                self._blind(error)
        if self._kubelet.look(made=False):
            self._miss_kubelet()
        for offering in self._offerings.values():
            offering.wake()
