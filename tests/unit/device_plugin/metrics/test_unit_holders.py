# SPDX-License-Identifier: Apache-2.0
"""Who holds what, asked of a real gRPC server on the kubelet's socket."""

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
from gpuhook.device_plugin.metrics.unit_holders import Holder, Holdings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Answer = Callable[[bytes, "aio.ServicerContext[bytes, bytes]"], Awaitable[bytes]]


@pytest.fixture
def socket() -> Iterator[str]:
    """Give a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        yield str(Path(directory) / "kubelet.sock")


@asynccontextmanager
async def kubelet(path: str, answer: Answer) -> AsyncIterator[None]:
    """Serve the pod resources API at `path`, List being answered by `answer`."""
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
    server = api.ContainerResources(name="main", devices=[devices("nvidia.com/gpu", "GPU-0::2")])
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


def ask(path: str, answer: Answer | None, timeout: float = 2.0) -> Holdings:
    """Return the holdings from a kubelet with this answer; None: no kubelet."""

    async def scenario() -> Holdings:
        if answer is None:
            return await unit_holders.ask(path, timeout)
        async with kubelet(path, answer):
            return await unit_holders.ask(path, timeout)

    return asyncio.run(scenario())


def test_units_and_their_holders(socket: str) -> None:
    """Each unit has the container that holds it, of all resources or of those asked for."""
    trainer = Holder("demo", "trainer", "main")
    gpus = {"GPU-0::0": trainer, "GPU-0::1": trainer, "GPU-0::2": Holder("demo", "server", "main")}
    nic = {"nic0": Holder("demo", "trainer", "sidecar")}
    found = ask(socket, _list)
    assert (found.holders, found.reason) == ({**gpus, **nic}, "")
    assert found.by_resource == {"nvidia.com/gpu": gpus, "vendor.com/nic": nic}
    assert found.by_resource["nvidia.com/gpu"] == gpus


def test_no_socket(socket: str) -> None:
    """Without a kubelet no holder is known, and the reason names the socket."""
    assert ask(socket, None) == Holdings(reason=f"{socket}: No such file or directory")


def test_not_a_socket(socket: str) -> None:
    """A file in its place is not asked."""
    Path(socket).touch()
    assert ask(socket, None) == Holdings(reason=f"{socket}: not a socket")


def test_nobody_listens(socket: str) -> None:
    """A socket that a dead kubelet left gives a reason at once."""
    with sockets.socket(sockets.AF_UNIX) as bound:
        bound.bind(socket)
    found = ask(socket, None)
    assert found.holders == {}
    assert "UNAVAILABLE" in found.reason


def test_no_permission(socket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that may not be opened is not tried."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    found = ask(socket, _list)
    assert found == Holdings(reason=f"{socket}: Permission denied")


def test_a_kubelet_that_does_not_answer(socket: str) -> None:
    """The call ends after its time."""

    async def never(request: bytes, context: object) -> bytes:
        await asyncio.Event().wait()
        return b""

    assert "DEADLINE_EXCEEDED" in ask(socket, never, timeout=0.2).reason


def test_a_kubelet_that_refuses(socket: str) -> None:
    """An error of the kubelet is the reason, in one line of bounded length."""

    async def refuse(request: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests " + "x" * 5000)

    found = ask(socket, refuse)
    assert "RESOURCE_EXHAUSTED: too many requests" in found.reason
    assert len(found.reason) <= 200


def test_bytes_that_are_no_message(socket: str) -> None:
    """An answer that cannot be parsed is a reason, too."""

    async def garbage(request: bytes, context: object) -> bytes:
        return b"\xff\xff\xff"

    found = ask(socket, garbage)
    assert found.holders == {}
    assert found.reason
