# SPDX-License-Identifier: Apache-2.0
"""A metrics exporter on its socket: both names of its service, and exporters that fail."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from grpc import aio

from gpuhook.device_plugin.api import exporter_pb2 as api
from gpuhook.device_plugin.api import services
from gpuhook.device_plugin.health.exporter_client import unhealthy_devices
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.plugin.vendor_part import ExporterWords

(WORDS,) = (vendor.exporter for vendor in vendors() if vendor.exporter is not None)


@pytest.fixture
def root() -> Iterator[Path]:
    """Return a directory with a short path: a socket's path is limited to 107 bytes."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="e") as made:
        (Path(made) / WORDS.socket.lstrip("/")).parent.mkdir(parents=True)
        yield Path(made)


@contextlib.asynccontextmanager
async def exporter(root: Path, service: str, answer: bytes) -> AsyncIterator[None]:
    """Serve List of `service` with these bytes."""

    async def reply(_request: bytes, _context: object) -> bytes:
        return answer

    server = aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]]
    handlers = {"List": grpc.unary_unary_rpc_method_handler(reply)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(services.target(str(root) + WORDS.socket))
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


def asked(root: Path, service: str, answer: bytes) -> dict[str, str]:
    async def scenario() -> dict[str, str]:
        async with exporter(root, service, answer):
            return await unhealthy_devices(WORDS, str(root))

    return asyncio.run(scenario())


def states(**health: str) -> bytes:
    gpus = [
        api.GPUState(ID=str(number), UUID="u", Health=text, Device=device)
        for number, (device, text) in enumerate(health.items())
    ]
    return api.GPUStateResponse(GPUState=gpus).SerializeToString()


@pytest.mark.parametrize("service", ["metricssvc", "gpumetricssvc"])
def test_only_unhealthy_marks_a_device(root: Path, service: str) -> None:
    answer = states(amdgpu_xcp_0="unhealthy", amdgpu_xcp_1="healthy", amdgpu_xcp_2="unknown")
    found = asked(root, f"{service}.MetricsService", answer)
    assert found == {"amdgpu_xcp_0": "the metrics exporter reports it as unhealthy"}


def test_node_without_an_exporter_has_no_verdict(tmp_path: Path) -> None:
    assert asyncio.run(unhealthy_devices(WORDS, str(tmp_path))) == {}


def test_other_service_is_an_error(root: Path) -> None:
    with pytest.raises(OSError, match="it serves none of /metricssvc"):
        asked(root, "othersvc.MetricsService", b"")


def test_answer_that_is_no_message_is_an_error(root: Path) -> None:
    with pytest.raises(OSError, match="exporter"):
        asked(root, "metricssvc.MetricsService", b"\xff\xff\xff")


def test_socket_without_a_listener_is_an_error(root: Path) -> None:
    (root / WORDS.socket.lstrip("/")).touch()
    with pytest.raises(OSError, match="UNAVAILABLE"):
        asyncio.run(unhealthy_devices(WORDS, str(root), timeout=20))


def test_hanging_exporter_is_an_error(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(root) + WORDS.socket)
        silent.listen()
        with pytest.raises(OSError, match=WORDS.socket):
            asyncio.run(unhealthy_devices(WORDS, str(root), timeout=0.2))


def test_words_have_the_socket_of_amds_exporter() -> None:
    assert isinstance(WORDS, ExporterWords)
    path = "/var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket"
    assert WORDS.socket == path
