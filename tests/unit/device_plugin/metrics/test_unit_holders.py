# SPDX-License-Identifier: Apache-2.0
"""Holders of units, read from a gRPC server on the kubelet's pod resources socket."""

from __future__ import annotations

import asyncio
import os
import socket as sockets
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc import aio

from gpuhook.device_plugin.api import podresources_pb2 as api
from gpuhook.device_plugin.metrics import unit_holders
from gpuhook.device_plugin.metrics.unit_holders import ClaimedDevice, Holder, Holdings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Answer = Callable[[bytes, "aio.ServicerContext[bytes, bytes]"], Awaitable[bytes]]


@pytest.fixture
def socket() -> Iterator[str]:
    """Return a path that is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        yield str(Path(directory) / "kubelet.sock")


@asynccontextmanager
async def kubelet(path: str, answer: Answer) -> AsyncIterator[None]:
    """Serve the pod resources API at `path`; `answer` answers List."""
    server = aio.server()
    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]]
    methods = {"List": grpc.unary_unary_rpc_method_handler(answer)}
    handler = grpc.method_handlers_generic_handler("v1.PodResourcesLister", methods)
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix://{path}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


def pods() -> api.ListPodResourcesResponse:
    """Return two pods on one GPU, and devices of others."""

    def devices(name: str, *ids: str) -> api.ContainerDevices:
        return api.ContainerDevices(resource_name=name, device_ids=ids)

    trainer = api.ContainerResources(
        name="main", devices=[devices("nvidia.com/gpu", "GPU-0::0", "GPU-0::1")]
    )
    sidecar = api.ContainerResources(name="sidecar", devices=[devices("vendor.com/nic", "nic0")])
    claim = api.DynamicResource(
        claim_name="gpus-x",
        claim_namespace="demo",
        claim_resources=[
            api.ClaimResource(
                cdi_devices=[api.CDIDevice(name="k8s.gpu.nvidia.com/claim=u-gpu-1")],
                driver_name="gpu.nvidia.com",
                pool_name="node-1",
                device_name="gpu-1",
                share_id="s-1",
            )
        ],
    )
    server = api.ContainerResources(
        name="main",
        devices=[devices("nvidia.com/gpu", "GPU-0::2")],
        dynamic_resources=[claim],
    )
    return api.ListPodResourcesResponse(
        pod_resources=[
            api.PodResources(name="trainer", namespace="demo", containers=[trainer, sidecar]),
            api.PodResources(name="server", namespace="demo", containers=[server]),
            api.PodResources(name="idle", namespace="demo"),
        ]
    )


async def _list(request: bytes, context: object) -> bytes:
    api.ListPodResourcesRequest.FromString(request)
    return pods().SerializeToString()


def query(path: str, answer: Answer | None, timeout: float = 2.0) -> Holdings:
    """Return the holdings from a kubelet with this answer. None: no kubelet."""

    async def scenario() -> Holdings:
        if answer is None:
            return await unit_holders.ask(path, timeout)
        async with kubelet(path, answer):
            return await unit_holders.ask(path, timeout)

    return asyncio.run(scenario())


def test_each_unit_has_its_holder(socket: str) -> None:
    trainer = Holder("demo", "trainer", "main")
    gpus = {"GPU-0::0": trainer, "GPU-0::1": trainer, "GPU-0::2": Holder("demo", "server", "main")}
    nic = {"nic0": Holder("demo", "trainer", "sidecar")}
    found = query(socket, _list)
    assert (found.holders, found.reason) == ({**gpus, **nic}, "")
    assert found.by_resource == {"nvidia.com/gpu": gpus, "vendor.com/nic": nic}
    claimed = ClaimedDevice("demo", "gpus-x", "gpu.nvidia.com", "node-1", "gpu-1", "s-1")
    assert found.claims == ((Holder("demo", "server", "main"), claimed),)


def test_missing_socket_has_a_reason(socket: str) -> None:
    assert query(socket, None) == Holdings(reason=f"{socket}: No such file or directory")


def test_file_instead_of_a_socket_is_not_called(socket: str) -> None:
    Path(socket).touch()
    assert query(socket, None) == Holdings(reason=f"{socket}: not a socket")


def test_socket_without_a_listener_has_a_reason(socket: str) -> None:
    with sockets.socket(sockets.AF_UNIX) as bound:
        bound.bind(socket)
    found = query(socket, None)
    assert found.holders == {}
    assert "UNAVAILABLE" in found.reason


def test_inaccessible_socket_is_not_called(socket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    found = query(socket, _list)
    assert found == Holdings(reason=f"{socket}: Permission denied")


def test_hanging_kubelet_times_out(socket: str) -> None:
    async def never(request: bytes, context: object) -> bytes:
        await asyncio.Event().wait()
        return b""

    assert "DEADLINE_EXCEEDED" in query(socket, never, timeout=0.2).reason


def test_error_of_the_kubelet_is_the_reason(socket: str) -> None:
    """The reason is one line of bounded length."""

    async def refuse(request: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests " + "x" * 5000)

    found = query(socket, refuse)
    assert "RESOURCE_EXHAUSTED: too many requests" in found.reason
    assert len(found.reason) <= 200


def test_unparsable_answer_has_a_reason(socket: str) -> None:
    async def garbage(request: bytes, context: object) -> bytes:
        return b"\xff\xff\xff"

    found = query(socket, garbage)
    assert found.holders == {}
    assert found.reason
