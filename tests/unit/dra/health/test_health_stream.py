# SPDX-License-Identifier: Apache-2.0
"""The kubelet's stream of health, over a real socket, in both versions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest
from grpc import aio

from gpuhook.device_plugin.api import services
from gpuhook.device_plugin.health import device_trouble
from gpuhook.device_plugin.health.device_trouble import DeviceTrouble
from gpuhook.device_plugin.kubelet.grpc_endpoint import Endpoint
from gpuhook.dra.api import drahealth_pb2 as api
from gpuhook.dra.health import health_stream
from gpuhook.dra.health.health_stream import HealthStream
from gpuhook.dra.pool.pool_device import Pool
from tests.unit.dra.claims.claims_world import DRIVER, NODE, gpu

POOL = Pool(DRIVER, NODE, (gpu(0), gpu(1)))
XID = DeviceTrouble(
    device_trouble.XID, "XID 79 (the GPU has fallen off the bus)", "reboot the node", "79", 100.0
)
SILENT = DeviceTrouble(device_trouble.SILENT, "the driver does not answer")
TIMEOUT = 30.0
Reading = Callable[["aio.UnaryStreamCall[Any, Any]"], Awaitable[None]]


class _Served:
    name = DRIVER

    def __init__(self, stream: HealthStream) -> None:
        self.rpc_handlers = stream.rpc_handlers


def watch(stream: HealthStream, read: Reading, version: str = "v1alpha1") -> None:
    """Open a stream as the kubelet does, and read it."""

    async def scenario() -> None:
        with TemporaryDirectory() as place:
            path = str(Path(place) / "dra.sock")
            endpoint = await Endpoint.listening(path, _Served(stream))
            async with aio.insecure_channel(services.target(path)) as channel:
                call = channel.unary_stream(
                    f"/{version}.DRAResourceHealth/NodeWatchResources",
                    request_serializer=api.NodeWatchResourcesRequest.SerializeToString,
                    response_deserializer=api.NodeWatchResourcesResponse.FromString,
                )(api.NodeWatchResourcesRequest(), timeout=TIMEOUT)
                await read(call)
            await endpoint.close()

    asyncio.run(scenario())


def healths(found: api.NodeWatchResourcesResponse) -> dict[str, tuple[int, str]]:
    return {one.device.device_name: (one.health, one.message) for one in found.devices}


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
def test_list_has_all_devices_of_the_pool(version: str) -> None:
    stream = HealthStream()
    stream.publish(POOL, {"GPU-1": (XID,)})
    begun = int(time.time())

    async def read(call: Any) -> None:
        found = await call.read()
        text = "XID 79 (the GPU has fallen off the bus) (remedy: reboot the node)"
        assert healths(found) == {"gpu-0": (api.HEALTHY, ""), "gpu-1": (api.UNHEALTHY, text)}
        for one in found.devices:
            assert one.device.pool_name == NODE
            assert one.health_check_timeout_seconds == 30
            assert begun <= one.last_updated_time <= time.time()

    watch(stream, read, version)


def test_golden_bytes_of_a_list() -> None:
    """The numbers of the fields are the kubelet's."""
    device = api.DeviceHealth(
        device=api.DeviceIdentifier(pool_name="p", device_name="d"),
        health=api.UNHEALTHY,
        last_updated_time=1,
        health_check_timeout_seconds=30,
        message="m",
    )
    response = api.NodeWatchResourcesResponse(devices=[device])
    assert response.SerializeToString() == (
        b"\x0a\x11\x0a\x06\x0a\x01p\x12\x01d\x10\x02\x18\x01\x20\x1e\x2a\x01m"
    )


def test_change_is_sent_at_once_and_the_whole_list_again() -> None:
    stream = HealthStream(interval=TIMEOUT)

    async def read(call: Any) -> None:
        stream.publish(POOL, {})
        assert set(healths(await call.read()).values()) == {(api.HEALTHY, "")}
        stream.publish(POOL, {})  # no change
        stream.publish(POOL, {"GPU-0": (SILENT,), "GPU-1": (SILENT, XID)})
        found = healths(await call.read())
        assert found["gpu-0"] == (api.UNKNOWN, "the driver does not answer")
        assert found["gpu-1"][0] == api.UNHEALTHY
        stream.publish(POOL, {})
        assert healths(await call.read()) == {"gpu-0": (1, ""), "gpu-1": (1, "")}

    watch(stream, read)


def test_list_is_repeated_without_a_change() -> None:
    """A device that is not heard of for 30 seconds has an unknown health."""
    stream = HealthStream(interval=0.01)
    stream.publish(POOL, {})

    async def read(call: Any) -> None:
        for _ in range(3):
            assert len((await call.read()).devices) == 2

    watch(stream, read)
    assert HealthStream()._interval < 30 / 2


def test_end_of_the_driver_ends_the_stream() -> None:
    stream = HealthStream(interval=TIMEOUT)
    stream.publish(POOL, {})

    async def read(call: Any) -> None:
        await call.read()
        stream.end()
        assert await call.read() is aio.EOF
        assert await call.code() is grpc.StatusCode.OK

    watch(stream, read)


def test_nothing_is_sent_before_the_first_pool() -> None:
    """An empty list would say that there is no device."""
    stream = HealthStream(interval=0.01)

    async def read(call: Any) -> None:
        waiting = asyncio.ensure_future(call.read())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        stream.publish(POOL, {})
        assert len((await waiting).devices) == 2

    watch(stream, read)


@pytest.mark.parametrize("text", ["x" * 5000, "\N{GREEK SMALL LETTER MU}" * 3000, "\udc80\n" * 900])
def test_message_fits_the_api_server(text: str) -> None:
    found = health_stream.message((DeviceTrouble(device_trouble.FAULT, text),))
    assert len(found.encode()) <= 1024
    assert found.endswith("...")
    assert found.isprintable()


def test_remedy_that_the_reason_has_is_not_repeated() -> None:
    action = DeviceTrouble(
        device_trouble.ACTION, "the driver requires: reset the GPU", "reset the GPU"
    )
    assert health_stream.message((action, action)) == "the driver requires: reset the GPU"
