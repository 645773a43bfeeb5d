# SPDX-License-Identifier: Apache-2.0
"""The DevicePlugin service of one resource: its list of devices, and the answers to calls.

No request ends the process, whatever its bytes are: a wrong request gets a gRPC status with one
sentence, a bug in gpuhook the status INTERNAL and a log line. Source: deviceplugin.proto.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import NamedTuple

import grpc

from gpuhook.device_plugin import daemon_thread
from gpuhook.device_plugin.api import deviceplugin_pb2 as api
from gpuhook.device_plugin.api import services
from gpuhook.device_plugin.api.services import HEALTHY, UNHEALTHY
from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS
from gpuhook.device_plugin.kubelet import call_status
from gpuhook.errors import GpuhookError, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from gpuhook.device_plugin.allocate.container_allocation import Allocation
    from gpuhook.device_plugin.api.services import Context, Method, Request, Response
    from gpuhook.device_plugin.kubelet.kubelet_answers import KubeletAnswers
    from gpuhook.device_plugin.kubelet.observer import Observer
    from gpuhook.device_plugin.offer.offered_devices import Resource, Unit


class _Listing(NamedTuple):
    """A serialized list."""

    devices: int
    data: bytes


_NOTHING = _Listing(0, b"")


class ResourceServer:
    """Answers calls for one resource, any number at once. An Endpoint has the socket.

    `unwatched` is called after the client has ended the last ListAndWatch stream.
    """

    def __init__(
        self, resource: Resource, answers: KubeletAnswers, observer: Observer, *, pre_start: bool
    ) -> None:
        self.resource = resource
        self.pre_start = pre_start
        self.unwatched: Callable[[], None] = lambda: None
        self.streams = 0
        self._answers = answers
        self._observer = observer
        self._checks: dict[tuple[str, ...], asyncio.Future[None]] = {}  # by the ids of units
        self._listing = _NOTHING
        self._ending = False
        self._changed = asyncio.Event()
        self.publish(resource, {})

    @property
    def name(self) -> str:
        return self.resource.name

    def publish(self, resource: Resource, unhealthy: Mapping[str, str]) -> None:
        """Offer `resource` from now on; `unhealthy` has reasons by the UUID of a device.

        Every stream gets the new list if it differs from the last one. A slow stream skips lists
        and gets the newest.
        """
        new = _Listing(len(resource.units), listing(resource, unhealthy).SerializeToString())
        if (resource, new) != (self.resource, self._listing):
            self._checks = {}  # later calls do not wait for those of what was offered before
        self.resource = resource
        self._show(new)

    def end(self) -> None:
        """Send an empty list on every stream, then end the stream."""
        self._ending = True
        self._show(_NOTHING)

    def options(self) -> api.DevicePluginOptions:
        """Return the options for the registration."""
        return api.DevicePluginOptions(
            pre_start_required=self.pre_start, get_preferred_allocation_available=True
        )

    def rpc_handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Return the handler by which a grpc.aio server calls this one with a request's bytes."""
        unary, answer = grpc.unary_unary_rpc_method_handler, self._answer
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            services.OPTIONS.name: unary(self._get_options),
            services.ALLOCATE.name: unary(partial(answer, services.ALLOCATE, self._allocate)),
            services.PREFERRED.name: unary(partial(answer, services.PREFERRED, self._preferred)),
            services.PRE_START.name: unary(partial(answer, services.PRE_START, self._pre_start)),
        }
        methods[services.LIST_AND_WATCH.name] = grpc.unary_stream_rpc_method_handler(
            self._list_and_watch
        )
        return (grpc.method_handlers_generic_handler(services.DEVICE_PLUGIN, methods),)

    def _show(self, new: _Listing) -> None:
        if new == self._listing and not self._ending:
            return
        self._listing = new
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _list_and_watch(self, _request: bytes, context: Context) -> None:
        """Write the list, and again after each change."""
        self._count(1)
        try:
            await self._watch(context)
        finally:
            self._count(-1)

    async def _watch(self, context: Context) -> None:
        sent = None
        while True:
            current, changed, ending = self._listing, self._changed, self._ending
            if current != sent:
                await context.write(current.data)
                sent = current
                self._observer.list_sent(self.name, current.devices, len(current.data))
            elif ending:
                return
            else:
                await changed.wait()

    def _count(self, more: int) -> None:
        self.streams += more
        self._observer.streams(self.name, self.streams)
        if self.streams == 0 and not self._ending:
            self.unwatched()

    async def _answer(
        self,
        method: Method[Request, Response],
        answer: Callable[[Request, float], Awaitable[Response]],
        data: bytes,
        context: Context,
    ) -> bytes:
        """Return the serialized response, or end the call with a status."""
        begun = time.perf_counter()
        try:
            return (await answer(call_status.parsed(method, data), begun)).SerializeToString()
        except GpuhookError as error:
            code, reason = call_status.code(error), call_status.sentence(error)
        except Exception as error:  # a bug ends the call, not the process
            code, reason = grpc.StatusCode.INTERNAL, f"gpuhook failed: {printable(repr(error))}"
            self._observer.broken(self.name, method.name, error)
        self._observer.refused(self.name, method.name, reason, time.perf_counter() - begun)
        return await context.abort(code, reason)

    async def _get_options(self, _request: bytes, _context: Context) -> bytes:
        return self.options().SerializeToString()

    async def _allocate(self, request: api.AllocateRequest, begun: float) -> api.AllocateResponse:
        requests = [list(one.devices_ids) for one in request.container_requests]
        response = allocate_response(self._answers.allocate(self.resource, requests))
        self._observer.allocated(self.name, requests, time.perf_counter() - begun)
        return response

    async def _preferred(
        self, request: api.PreferredAllocationRequest, begun: float
    ) -> api.PreferredAllocationResponse:
        chosen: list[Sequence[str]] = [
            self._answers.preferred(
                self.resource,
                list(one.available_deviceIDs),
                list(one.must_include_deviceIDs),
                one.allocation_size,
            )
            for one in request.container_requests
        ]
        self._observer.preferred(self.name, time.perf_counter() - begun)
        return api.PreferredAllocationResponse(
            container_responses=[
                api.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in chosen
            ]
        )

    async def _pre_start(
        self, request: api.PreStartContainerRequest, begun: float
    ) -> api.PreStartContainerResponse:
        ids = list(request.devices_ids)
        if self.pre_start:
            # A kubelet that has gone, or waited too long, calls again: the check goes on. If the
            # offer changed meanwhile, it says nothing about the present one.
            offered = None
            while offered != self._listing:
                offered = self._listing
                await asyncio.shield(self._check(ids))
            self._observer.pre_started(self.name, ids, time.perf_counter() - begun)
        return api.PreStartContainerResponse()

    def _check(self, ids: list[str]) -> asyncio.Future[None]:
        """Return the check of these units, which may block: the one that runs, or a new one."""
        key, resource = tuple(ids), self.resource
        if key not in self._checks:
            check = daemon_thread.begin(
                lambda: self._answers.pre_start(resource, ids), "gpuhook-pre-start"
            )
            check.add_done_callback(lambda _: self._forget(key, check))
            self._checks[key] = check
        return self._checks[key]

    def _forget(self, key: tuple[str, ...], check: asyncio.Future[None]) -> None:
        if self._checks.get(key) is check:
            del self._checks[key]


def listing(resource: Resource, unhealthy: Collection[str]) -> api.ListAndWatchResponse:
    """Return the list of a resource's units, in their order.

    `unhealthy` has UUIDs of devices. A unit has a topology only if its NUMA node is known: the
    kubelet takes an unset node for node 0. Memory units have none: the kubelet prefers units of one
    NUMA node, and would split a request over several GPUs.
    """
    has_node = resource.sharing != MEMORY_UNITS
    return api.ListAndWatchResponse(
        devices=[_device(unit, unhealthy, has_node=has_node) for unit in resource.units]
    )


def _device(unit: Unit, unhealthy: Collection[str], *, has_node: bool) -> api.Device:
    health = UNHEALTHY if unit.device.uuid in unhealthy else HEALTHY
    node = unit.device.numa_node if has_node else None
    if node is None or node < 0:
        return api.Device(ID=unit.id, health=health)
    topology = api.TopologyInfo(nodes=[api.NUMANode(ID=node)])
    return api.Device(ID=unit.id, health=health, topology=topology)


def allocate_response(allocations: Iterable[Allocation]) -> api.AllocateResponse:
    """Return the answer of Allocate: one part for each container."""
    return api.AllocateResponse(container_responses=[_container(one) for one in allocations])


def _container(allocation: Allocation) -> api.ContainerAllocateResponse:
    return api.ContainerAllocateResponse(
        envs=allocation.envs,
        mounts=[
            api.Mount(
                container_path=mount.container_path,
                host_path=mount.host_path,
                read_only=mount.read_only,
            )
            for mount in allocation.mounts
        ],
        devices=[
            api.DeviceSpec(
                container_path=node.container_path,
                host_path=node.host_path,
                permissions=node.permissions,
            )
            for node in allocation.devices
        ],
        annotations=allocation.annotations,
        cdi_devices=[api.CDIDevice(name=name) for name in allocation.cdi_devices],
    )
