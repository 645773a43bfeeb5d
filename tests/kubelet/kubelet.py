# SPDX-License-Identifier: Apache-2.0
"""A simulation of the kubelet's device manager, with the real protocol and real sockets.

Like the kubelet, it removes all sockets of its directory at the start, connects to a plugin before
it answers the registration, counts healthy devices, and requests the preferred units before the
allocation. Allocations remain over a restart, as in the kubelet's checkpoint. It uses threads and
blocking calls.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import grpc

from gpuhook.device_plugin.api import deviceplugin_pb2 as api
from gpuhook.device_plugin.api import services
from tests.kubelet.endpoint import Endpoint, Stream
from tests.waiting import Changes


class AdmissionError(Exception):
    """The reason why a pod fails with UnexpectedAdmissionError."""


@dataclass(frozen=True)
class Registration:
    """A call of Register."""

    resource: str
    endpoint: str
    version: str
    options: api.DevicePluginOptions


@dataclass(frozen=True)
class Allocated:
    """The allocation of one container."""

    resource: str
    ids: tuple[str, ...]
    response: api.ContainerAllocateResponse


class Kubelet:
    """A kubelet on the plugin directory `directory`. Register fails with `refuses` if it is set."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "kubelet.sock"
        self.refuses = ""
        self.registrations: list[Registration] = []
        self.in_use: dict[str, set[str]] = {}
        self.changes = Changes()
        self._endpoints: dict[str, Endpoint] = {}
        self._replaced: list[Endpoint] = []
        self._server: grpc.Server | None = None
        self._starts = 0

    def __enter__(self) -> Kubelet:  # noqa: PYI034  # Self is of Python 3.11
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Remove all sockets of the directory, and serve Registration on kubelet.sock."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for entry in list(self.directory.iterdir()):
            with suppress(FileNotFoundError):  # a plugin can remove it at the same time
                if stat.S_ISSOCK(entry.lstat().st_mode):
                    entry.unlink()
        self._starts += 1
        server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        handler = grpc.unary_unary_rpc_method_handler(
            self._register,
            request_deserializer=api.RegisterRequest.FromString,
            response_serializer=api.Empty.SerializeToString,
        )
        service, name = services.REGISTER.path[1:].split("/")
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {name: handler}),)
        )
        # gRPC unlinks the bound path late, after stop() returns; kubelet.sock is another name of
        # that socket.
        bound = self.directory / f".k{self._starts}"
        server.add_insecure_port(services.target(str(bound)))
        server.start()
        os.link(bound, self.socket)
        bound.unlink()
        self._server = server

    def stop(self) -> None:
        """Stop like a stopped kubelet, and remove the socket."""
        self.kill()
        self.socket.unlink(missing_ok=True)

    def kill(self) -> None:
        """Stop at once, and leave the socket."""
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None
        with self.changes:
            endpoints = [*self._endpoints.values(), *self._replaced]
            self._endpoints = {}
            self._replaced = []
        for endpoint in endpoints:
            endpoint.close()

    def remove_directory(self) -> None:
        """Remove the plugin directory with its content."""
        while self.directory.exists():
            shutil.rmtree(self.directory, ignore_errors=True)

    def restart(self) -> None:
        self.stop()
        self.start()

    def wait_for(self, wanted: Callable[[], object], what: str = "") -> None:
        """Wait until `wanted()` is true; each event of the kubelet evaluates it."""
        self.changes.wait_for(wanted, what)

    def wait_for_devices(self, resource: str, healthy: int, unhealthy: int = 0) -> None:
        """Wait until the resource has these numbers of healthy and unhealthy devices."""
        self.wait_for(
            lambda: (
                (self.allocatable(resource), self.capacity(resource))
                == (healthy, healthy + unhealthy)
            ),
            f"{healthy} healthy and {unhealthy} unhealthy {resource}",
        )

    def endpoint(self, resource: str) -> Endpoint:
        """Return the connection to the plugin of a resource. Raises KeyError without one."""
        with self.changes:
            return self._endpoints[resource]

    def devices(self, resource: str) -> dict[str, api.Device]:
        """Return the current devices by id. All are unhealthy after the end of the stream."""
        with self.changes:
            endpoint = self._endpoints.get(resource)
            if endpoint is None:
                return {}
            if not endpoint.stream.ended:
                return endpoint.devices
            return {
                name: api.Device(ID=name, health=services.UNHEALTHY) for name in endpoint.devices
            }

    def capacity(self, resource: str) -> int:
        """Return the capacity of the node."""
        return len(self.devices(resource))

    def allocatable(self, resource: str) -> int:
        """Return the allocatable devices: the healthy ones."""
        return len(self._healthy(resource))

    def free(self, resource: str) -> int:
        """Return the number of healthy devices that are not allocated."""
        return len(self._available(resource))

    def watch(self, resource: str) -> Stream:
        """Open another ListAndWatch stream."""
        return self.endpoint(resource).watch()

    def allocate(self, resource: str, count: int) -> Allocated:
        """Allocate `count` units to a new container. Raises AdmissionError."""
        available = self._available(resource)
        if len(available) < count:
            raise AdmissionError(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {count}, Available: {len(available)}"
            )
        endpoint = self.endpoint(resource)
        try:
            ids = self._chosen(endpoint, available, count)
            (response,) = endpoint.allocate(ids).container_responses
        except grpc.RpcError as error:
            raise AdmissionError(str(error.details())) from error
        self.in_use.setdefault(resource, set()).update(ids)
        return Allocated(resource, tuple(ids), response)

    def pre_start(self, allocated: Allocated) -> None:
        """Call PreStartContainer if it is required. Raises AdmissionError."""
        endpoint = self.endpoint(allocated.resource)
        if endpoint.options.pre_start_required:
            try:
                endpoint.pre_start(allocated.ids)
            except grpc.RpcError as error:
                raise AdmissionError(str(error.details())) from error

    def release(self, allocated: Allocated) -> None:
        """Release the units of an ended container."""
        self.in_use[allocated.resource] -= set(allocated.ids)

    def _healthy(self, resource: str) -> list[str]:
        devices = self.devices(resource).values()
        return [device.ID for device in devices if device.health == services.HEALTHY]

    def _available(self, resource: str) -> list[str]:
        used = self.in_use.get(resource, set())
        return [name for name in self._healthy(resource) if name not in used]

    @staticmethod
    def _chosen(endpoint: Endpoint, available: Sequence[str], count: int) -> list[str]:
        """Return the preferred units that are available, and any other units after them."""
        preferred: list[str] = []
        if endpoint.options.get_preferred_allocation_available and count < len(available):
            preferred = endpoint.preferred(available, (), count)
        ordered = [*(name for name in preferred if name in available), *available]
        return list(dict.fromkeys(ordered))[:count]

    def _register(self, request: api.RegisterRequest, context: grpc.ServicerContext) -> api.Empty:
        registration = Registration(
            request.resource_name, request.endpoint, request.version, request.options
        )
        with self.changes:
            self.registrations.append(registration)
        if self.refuses:
            context.abort(grpc.StatusCode.UNKNOWN, self.refuses)
        try:
            socket = self.directory / request.endpoint
            endpoint = Endpoint(socket, request.options, self.changes)
        except grpc.RpcError:
            context.abort(grpc.StatusCode.UNKNOWN, "failed to dial device plugin")
        with self.changes:
            old = self._endpoints.get(request.resource_name)
            self._endpoints[request.resource_name] = endpoint
            if old is not None:
                self._replaced.append(old)
        return api.Empty()
