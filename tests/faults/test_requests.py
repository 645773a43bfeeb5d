# SPDX-License-Identifier: Apache-2.0
"""Requests of any kind over the real socket: none ends the process, and the next is answered."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuhook.device_plugin.api import deviceplugin_pb2 as api
from gpuhook.device_plugin.api import services
from tests.kubelet.endpoint import Endpoint
from tests.kubelet.plugin import Plugin, resource
from tests.waiting import Changes, eventually

UNARY = [services.OPTIONS, services.PREFERRED, services.ALLOCATE, services.PRE_START]
MAGIC = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"

texts = st.text(max_size=70)
lists = st.lists(texts, max_size=8)
containers = st.builds(
    api.ContainerPreferredAllocationRequest,
    available_deviceIDs=lists,
    must_include_deviceIDs=lists,
    allocation_size=st.integers(-(2**31), 2**31 - 1),
)
messages = st.one_of(
    st.builds(
        api.AllocateRequest,
        container_requests=st.lists(
            st.builds(api.ContainerAllocateRequest, devices_ids=lists), max_size=4
        ),
    ),
    st.builds(api.PreferredAllocationRequest, container_requests=st.lists(containers, max_size=4)),
    st.builds(api.PreStartContainerRequest, devices_ids=lists),
)
# Messages of any method to any other, cut at any byte, and plain garbage.
requests = st.one_of(
    st.binary(max_size=300),
    messages.map(lambda one: one.SerializeToString()),
    st.tuples(messages, st.integers(0, 200)).map(lambda p: p[0].SerializeToString()[: p[1]]),
)


class Served:
    """A plugin on a socket, and a connection that sends plain bytes."""

    def __init__(self, directory: Path, plugin: Plugin) -> None:
        self.path = directory / "nvidia-gpu.sock"
        self.plugin = plugin
        self.endpoint = Endpoint(self.path, api.DevicePluginOptions(), Changes())
        self.channel = grpc.insecure_channel(
            services.target(str(self.path)),
            options=[*services.CHANNEL_OPTIONS, ("grpc.max_send_message_length", -1)],
        )

    def status(self, path: str, data: bytes) -> grpc.StatusCode:
        """Return how a call with these bytes ends."""
        try:
            self.channel.unary_unary(path, request_serializer=bytes)(data, timeout=60)
        except grpc.RpcError as error:
            return grpc.StatusCode(error.code())
        return grpc.StatusCode.OK

    def still_answers(self) -> None:
        """Check that a good call goes well."""
        (answer,) = self.endpoint.allocate(["GPU-0::0"]).container_responses
        assert dict(answer.envs) == {"GPUS": "GPU-0::0"}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with (
        tempfile.TemporaryDirectory() as directory,
        Plugin(Path(directory), kubelet="", pre_start=True) as plugin,
    ):
        plugin.offer(resource())
        made = Served(Path(directory), plugin)
        yield made
        made.channel.close()
        made.endpoint.close()


@settings(max_examples=150)
@given(method=st.sampled_from(UNARY), data=requests)
def test_any_bytes_to_any_method(
    served: Served,
    method: services.Method[Any, Any],
    data: bytes,
) -> None:
    """Bytes are a request and answered, or not one and refused; the plugin does not break."""
    status = served.status(method.path, data)
    assert status in {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}
    served.still_answers()
    assert served.plugin.observed.count("broken") == 0


@settings(max_examples=50)
@given(data=requests)
def test_any_bytes_to_the_stream(served: Served, data: bytes) -> None:
    """ListAndWatch has nothing to ask: whatever is in its request, the list comes."""
    call = served.channel.unary_stream(
        services.LIST_AND_WATCH.path,
        request_serializer=bytes,
        response_deserializer=api.ListAndWatchResponse.FromString,
    )(data)
    assert len(next(call).devices) == 4
    call.cancel()
    served.still_answers()


@settings(max_examples=50)
@given(data=st.one_of(st.binary(max_size=500), st.binary(max_size=300).map(MAGIC.__add__)))
def test_any_bytes_to_the_socket(served: Served, data: bytes) -> None:
    """What is no gRPC, or stops in the middle of it, concerns its connection only."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(served.path))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            caller.sendall(data)
    served.still_answers()


@pytest.mark.parametrize(
    "path",
    [
        "/v1beta1.DevicePlugin/Deallocate",
        "/v1.DevicePlugin/Allocate",
        "/v1beta1.Registration/Register",
        "/",
        "/" + "x" * 4000,
    ],
    ids=lambda path: str(path[:30]),
)
def test_methods_that_are_not_there(served: Served, path: str) -> None:
    """A method of another version or service is UNIMPLEMENTED."""
    assert served.status(path, b"") is grpc.StatusCode.UNIMPLEMENTED
    served.still_answers()


def test_messages_of_any_size(served: Served) -> None:
    """A message up to 16 MiB is read; above that the call ends, and no other."""
    large = api.PreStartContainerRequest(devices_ids=["x" * (1 << 20)] * 15)
    path = services.PRE_START.path
    assert served.status(path, large.SerializeToString()) is grpc.StatusCode.OK
    large.devices_ids.extend(["x" * (1 << 20)] * 2)
    status = served.status(path, large.SerializeToString())
    assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
    served.still_answers()


def test_messages_in_messages_without_end(served: Served) -> None:
    """Unknown groups, nested deeper than a parser goes, are no message."""
    nested = b"\x7b" * 100_000
    assert served.status(services.ALLOCATE.path, nested) is grpc.StatusCode.INVALID_ARGUMENT
    served.still_answers()


def test_half_a_request(served: Served) -> None:
    """A caller that begins a call and goes away, or just waits, keeps no other caller waiting."""
    headers = (
        b"\x83\x86"  # :method POST, :scheme http
        b"\x04\x1e/v1beta1.DevicePlugin/Allocate"
        b"\x01\x09localhost"
        b"\x40\x0ccontent-type\x10application/grpc"
        b"\x40\x02te\x08trailers"
    )
    frame = len(headers).to_bytes(3, "big") + b"\x01\x04\x00\x00\x00\x01" + headers
    started = (
        b"\x00\x00\x0a\x00\x00\x00\x00\x00\x01" + b"\x00\x00\x00\x01\x00" + b"\x0a\xff\xff\xff\x7f"
    )
    tasks = served.plugin.thread.tasks()
    waiting = []
    for _ in range(20):
        caller = socket.socket(socket.AF_UNIX)
        caller.connect(str(served.path))
        caller.sendall(MAGIC + SETTINGS + frame + started)
        waiting.append(caller)
    eventually(lambda: served.plugin.thread.tasks() >= tasks + 20, "calls that have begun")
    served.still_answers()
    for caller in waiting:
        caller.close()
    eventually(lambda: served.plugin.thread.tasks() <= tasks, "the ends of the calls")
    served.still_answers()
