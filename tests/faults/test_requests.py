# SPDX-License-Identifier: Apache-2.0
"""Requests of any kind to a real socket: none ends the process, and the next is answered."""

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
# Messages of any method, truncated messages, and random bytes.
requests = st.one_of(
    st.binary(max_size=300),
    messages.map(lambda one: one.SerializeToString()),
    st.tuples(messages, st.integers(0, 200)).map(lambda p: p[0].SerializeToString()[: p[1]]),
)


class ServedPlugin:
    """A plugin on a socket, and a connection that sends raw bytes."""

    def __init__(self, directory: Path, plugin: Plugin) -> None:
        self.path = directory / "nvidia-gpu.sock"
        self.plugin = plugin
        self.endpoint = Endpoint(self.path, api.DevicePluginOptions(), Changes())
        self.channel = grpc.insecure_channel(
            services.target(str(self.path)),
            options=[*services.CHANNEL_OPTIONS, ("grpc.max_send_message_length", -1)],
        )

    def status(self, path: str, data: bytes) -> grpc.StatusCode:
        """Return the status of a call with these bytes."""
        try:
            self.channel.unary_unary(path, request_serializer=bytes)(data, timeout=60)
        except grpc.RpcError as error:
            return grpc.StatusCode(error.code())
        return grpc.StatusCode.OK

    def assert_answers(self) -> None:
        """Check that a valid call succeeds."""
        (answer,) = self.endpoint.allocate(["GPU-0::0"]).container_responses
        assert dict(answer.envs) == {"GPUS": "GPU-0::0"}


@pytest.fixture(scope="module")
def served() -> Iterator[ServedPlugin]:
    with (
        tempfile.TemporaryDirectory() as directory,
        Plugin(Path(directory), kubelet="", pre_start=True) as plugin,
    ):
        plugin.offer(resource())
        plugin_on_socket = ServedPlugin(Path(directory), plugin)
        yield plugin_on_socket
        plugin_on_socket.channel.close()
        plugin_on_socket.endpoint.close()


@settings(max_examples=150)
@given(method=st.sampled_from(UNARY), data=requests)
def test_any_bytes_are_answered_or_refused(
    served: ServedPlugin,
    method: services.Method[Any, Any],
    data: bytes,
) -> None:
    status = served.status(method.path, data)
    assert status in {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}
    served.assert_answers()
    assert served.plugin.observed.count("broken") == 0


@settings(max_examples=50)
@given(data=requests)
def test_list_and_watch_ignores_its_request(served: ServedPlugin, data: bytes) -> None:
    call = served.channel.unary_stream(
        services.LIST_AND_WATCH.path,
        request_serializer=bytes,
        response_deserializer=api.ListAndWatchResponse.FromString,
    )(data)
    assert len(next(call).devices) == 4
    call.cancel()
    served.assert_answers()


@settings(max_examples=50)
@given(data=st.one_of(st.binary(max_size=500), st.binary(max_size=300).map(MAGIC.__add__)))
def test_invalid_grpc_ends_only_its_connection(served: ServedPlugin, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(served.path))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            caller.sendall(data)
    served.assert_answers()


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
def test_unknown_method_is_unimplemented(served: ServedPlugin, path: str) -> None:
    assert served.status(path, b"") is grpc.StatusCode.UNIMPLEMENTED
    served.assert_answers()


def test_message_above_16_mib_is_refused(served: ServedPlugin) -> None:
    large = api.PreStartContainerRequest(devices_ids=["x" * (1 << 20)] * 15)
    path = services.PRE_START.path
    assert served.status(path, large.SerializeToString()) is grpc.StatusCode.OK
    large.devices_ids.extend(["x" * (1 << 20)] * 2)
    status = served.status(path, large.SerializeToString())
    assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
    served.assert_answers()


def test_deeply_nested_message_is_refused(served: ServedPlugin) -> None:
    nested = b"\x7b" * 100_000
    assert served.status(services.ALLOCATE.path, nested) is grpc.StatusCode.INVALID_ARGUMENT
    served.assert_answers()


def test_incomplete_request_does_not_block_others(served: ServedPlugin) -> None:
    """The client closes the connection, or waits."""
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
    served.assert_answers()
    for caller in waiting:
        caller.close()
    eventually(lambda: served.plugin.thread.tasks() <= tasks, "the ends of the calls")
    served.assert_answers()
