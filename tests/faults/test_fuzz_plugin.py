# SPDX-License-Identifier: Apache-2.0
"""Random requests to the plugin process: none ends it, and valid requests are answered."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from gpuhook.device_plugin.api import deviceplugin_pb2 as api
from gpuhook.device_plugin.api import services
from tests.depth import depth
from tests.faults import vitals
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import GPU, TIME_SLICING, PluginProcess
from tests.kubelet.running import Run

pytestmark = pytest.mark.contract

UNARY = (services.OPTIONS, services.PREFERRED, services.ALLOCATE, services.PRE_START)
EXPECTED = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,  # not a message
    grpc.StatusCode.UNKNOWN,  # a message with an impossible request
}
CALLS = depth(200, 5000)
SEEDS = (1, 2)


class Fuzz:
    """Random bytes and messages; `known` are existing ids."""

    def __init__(self, seed: int, known: list[str]) -> None:
        self.chance = random.Random(seed)
        self.known = known

    def request(self) -> bytes:
        """Return a valid or an invalid request."""
        chance = self.chance
        made = chance.choice((self._allocate, self._preferred, self._pre_start))()
        data: bytes = made.SerializeToString()
        kind = chance.randrange(4)
        if kind == 0:
            return chance.randbytes(chance.randrange(200))
        if kind == 1:
            return data[: chance.randrange(len(data) + 1)]
        if kind == 2 and data:
            torn = bytearray(data)
            torn[chance.randrange(len(torn))] = chance.randrange(256)
            return bytes(torn)
        return data

    def _id(self) -> str:
        chance = self.chance
        known = chance.choice(self.known)
        return chance.choice(
            [
                known,
                known,
                known,
                known.partition("::")[0],
                known + "::0",
                known[:-1],
                "",
                "::",
                "..",
                "x" * chance.randrange(5000),
                "\x00",
                "GPU-ü",
                known.upper(),
            ]
        )

    def _ids(self) -> list[str]:
        return [self._id() for _ in range(self.chance.choice([0, 1, 1, 2, 3, 40]))]

    def _allocate(self) -> Any:
        return api.AllocateRequest(
            container_requests=[
                api.ContainerAllocateRequest(devices_ids=self._ids())
                for _ in range(self.chance.randrange(4))
            ]
        )

    def _preferred(self) -> Any:
        sizes = [-(2**31), -1, 0, 1, 2, 3, 100, 2**31 - 1]
        return api.PreferredAllocationRequest(
            container_requests=[
                api.ContainerPreferredAllocationRequest(
                    available_deviceIDs=self._ids(),
                    must_include_deviceIDs=self._ids(),
                    allocation_size=self.chance.choice(sizes),
                )
                for _ in range(self.chance.randrange(4))
            ]
        )

    def _pre_start(self) -> Any:
        return api.PreStartContainerRequest(devices_ids=self._ids())


@pytest.fixture
def channel(kubelet: Kubelet) -> Iterator[Callable[[], grpc.Channel]]:
    """Return a function that connects to the plugin's socket."""
    opened: list[grpc.Channel] = []

    def connect() -> grpc.Channel:
        path: Path = kubelet.directory / "nvidia-gpu.sock"
        opened.append(
            grpc.insecure_channel(services.target(str(path)), options=[*services.CHANNEL_OPTIONS])
        )
        return opened[-1]

    yield connect
    for one in opened:
        one.close()


def status(channel: grpc.Channel, path: str, data: bytes) -> grpc.StatusCode:
    """Return the status of a call with these bytes."""
    try:
        channel.unary_unary(path, request_serializer=bytes)(data, timeout=60)
    except grpc.RpcError as error:
        return grpc.StatusCode(error.code())
    return grpc.StatusCode.OK


def assert_same_process_serves(running: PluginProcess, before: vitals.Vitals) -> None:
    """Check that the same process gives a pod its GPUs."""
    vitals.check(running, before)
    running.kubelet.wait_for_devices(GPU, 16)
    allocated = running.kubelet.allocate(GPU, 2)
    assert len(allocated.response.envs["NVIDIA_VISIBLE_DEVICES"].split(",")) == 2
    running.kubelet.release(allocated)
    assert not [line for line in running.log() if line.get("level") == "error"]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_requests_do_not_end_the_plugin(
    run: Run, kubelet: Kubelet, channel: Callable[[], grpc.Channel], seed: int
) -> None:
    running = run("h100x8", TIME_SLICING.replace("4", "2"), GPUHOOK_PRE_START_CHECK="true")
    kubelet.wait_for_devices(GPU, 16)
    fuzz, calls = Fuzz(seed, list(kubelet.devices(GPU))), channel()
    status(calls, services.OPTIONS.path, b"")
    before = vitals.read(running.pid)
    statuses = set()
    for turn in range(CALLS):
        method = fuzz.chance.choice(UNARY)
        statuses.add(status(calls, method.path, fuzz.request()))
        if turn % 50 == 0:
            endpoint = kubelet.endpoint(GPU)
            assert endpoint.allocate([fuzz.known[0]]).container_responses
    assert statuses <= EXPECTED
    assert grpc.StatusCode.OK in statuses
    assert len(statuses) > 1
    assert_same_process_serves(running, before)


def test_random_bytes_to_streams_and_unknown_methods(
    run: Run, kubelet: Kubelet, channel: Callable[[], grpc.Channel]
) -> None:
    running = run("h100x8", TIME_SLICING.replace("4", "2"))
    kubelet.wait_for_devices(GPU, 16)
    fuzz, calls = Fuzz(3, list(kubelet.devices(GPU))), channel()
    status(calls, services.OPTIONS.path, b"")
    before = vitals.read(running.pid)
    for _ in range(200):
        watch = calls.unary_stream(
            services.LIST_AND_WATCH.path,
            request_serializer=bytes,
            response_deserializer=api.ListAndWatchResponse.FromString,
        )(fuzz.request(), timeout=60)
        assert len(next(watch).devices) == 16
        watch.cancel()
        letters = fuzz.chance.choices("abcXYZ019./", k=fuzz.chance.randrange(1, 60))
        missing = status(calls, "/" + "".join(letters), fuzz.request())
        assert missing is grpc.StatusCode.UNIMPLEMENTED
    assert_same_process_serves(running, before)
