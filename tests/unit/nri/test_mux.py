# SPDX-License-Identifier: Apache-2.0
"""The multiplexer and ttrpc: golden bytes, frames cut anywhere, limits, statuses."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gpuhook.nri.wire import nri_messages
from gpuhook.nri.wire.mux import Mux, MuxClosedError
from gpuhook.nri.wire.protobuf_wire import Message
from gpuhook.nri.wire.ttrpc import LARGEST_DATA, CallError, Peer
from tests.nri import nri_api
from tests.nri.fake_runtime import (
    PLUGIN,
    READER,
    REQUEST,
    RUNTIME,
    FakePlugin,
    FrameError,
    StatusError,
    joined,
    split,
)

SERVICE = "nri.pkg.api.v1alpha1.Plugin"


class Calls:
    """A service that records its calls and answers with `answer`."""

    def __init__(self) -> None:
        self.seen: list[tuple[bytes, float]] = []
        self.answer = b""

    def method(self, data: memoryview, limit: float) -> bytes:
        self.seen.append((bytes(data), limit))
        return self.answer


class Ends:
    """Both ends of a connection."""

    def __init__(self, ours: socket.socket, theirs: socket.socket) -> None:
        self.calls = Calls()
        self.peer = Peer(Mux(ours), {SERVICE: {"Configure": self.calls.method}})
        self.runtime = FakePlugin(theirs)

    def serve(self, stream: int) -> bytes:
        """Serve what has arrived; return the payload of the answer."""
        self.peer.step()
        return self.runtime.answer(stream)


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Yield both ends of a connection."""
    with connected() as (ours, theirs):
        yield Ends(ours, theirs)


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    try:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
        yield ours, theirs
    finally:
        ours.close()
        theirs.close()


def read_bytes(link: socket.socket) -> bytes:
    return link.recv(1 << 20)


def test_registration_bytes(ends: Ends) -> None:
    """The first call, byte by byte, and the empty answer that means OK."""
    done: list[Message | CallError] = []
    request = nri_messages.registration("gpuhook", "10")
    ends.peer.call(nri_messages.RUNTIME_SERVICE, "RegisterPlugin", request, done.append)
    payload = b"\x0a\x07gpuhook\x12\x0210"
    data = b"\x0a\x1cnri.pkg.api.v1alpha1.Runtime\x12\x0eRegisterPlugin\x1a\x0d" + payload
    frame = bytes.fromhex("00000002 00000047 0000003d 00000001 0100") + data
    assert read_bytes(ends.runtime.link) == frame
    ends.runtime.link.sendall(bytes.fromhex("00000002 0000000a 00000000 00000001 0200"))
    ends.peer.step()
    assert isinstance(done[0], Message)


def test_configuration_bytes(ends: Ends) -> None:
    """The answer to Configure, byte by byte: the mask has one bit, CREATE_CONTAINER."""
    ends.calls.answer = nri_messages.subscription(nri_messages.CREATE_CONTAINER)
    data = b"\x0a\x1bnri.pkg.api.v1alpha1.Plugin\x12\x09Configure"
    head = struct.pack(">IIIIBB", 1, 10 + len(data), len(data), 5, 1, 0)
    ends.runtime.link.sendall(head + data)
    ends.peer.step()
    answer = bytes.fromhex("00000001 0000000e 00000004 00000005 0200 12021008")
    assert read_bytes(ends.runtime.link) == answer
    assert ends.calls.seen == [(b"", 0.0)]


def _request(payload: bytes = b"payload", **more: Any) -> bytes:
    fields = {"service": SERVICE, "method": "Configure", "payload": payload, **more}
    return bytes(nri_api.new("Request", **fields).SerializeToString())


def _message(data: bytes, stream: int = 1) -> bytes:
    return struct.pack(">IIBB", len(data), stream, REQUEST, 0) + data


def test_cut_at_every_byte(ends: Ends) -> None:
    """The two parts of a message may be frames of any length, and arrive at any time."""
    message = _message(_request())
    for at in range(1, len(message)):
        for part in (message[:at], message[at:]):
            ends.runtime.link.sendall(struct.pack(">II", PLUGIN, len(part)) + part)
        assert ends.serve(1) == b""
    stream = struct.pack(">II", PLUGIN, len(message)) + message
    for at in range(1, len(stream)):  # the socket may cut the frame's header, too
        ends.runtime.link.sendall(stream[:at])
        ends.peer.step()
        ends.runtime.link.sendall(stream[at:])
        assert ends.serve(1) == b""
    assert {data for data, _ in ends.calls.seen} == {b"payload"}
    assert len(ends.calls.seen) == len(message) + len(stream) - 2


@pytest.mark.parametrize("cut", [joined, split], ids=["joined", "split"])
def test_header_and_data(ends: Ends, cut: Any) -> None:
    """Header and data may come in one frame or in two."""
    ends.runtime.cut = cut
    for payload in (b"", b"x" * 100_000):
        stream = ends.runtime.begin("Configure", payload)
        while len(ends.calls.seen) == 0:
            ends.peer.step()
        assert ends.runtime.answer(stream) == b""
        assert ends.calls.seen.pop()[0] == payload


def test_bytes_of_one_frame_each(ends: Ends) -> None:
    """A frame may be empty, or have one byte."""
    ends.runtime.cut = lambda message: (part for byte in message for part in (b"", bytes([byte])))
    assert ends.serve(ends.runtime.begin("Configure", b"payload")) == b""


def test_unknown_connections_are_discarded(ends: Ends) -> None:
    """Frames of other connections are dropped, however large, and those after them are read."""
    for connection, size in ((0, 5), (3, 0), (77, 300_000), (2**32 - 1, 70_000)):
        ends.runtime.link.sendall(struct.pack(">II", connection, size) + b"\x01" * size)
    stream = ends.runtime.begin("Configure", b"payload")
    while not ends.calls.seen:
        ends.peer.step()
    assert ends.runtime.answer(stream) == b""


@pytest.mark.parametrize("size", [0, 1, READER - 30, READER - 10, READER, 5000, 100_000])
def test_frames_that_the_runtime_can_read(ends: Ends, size: int) -> None:
    """A frame that begins a message is at most 4096 bytes; there are never more than two."""
    ends.calls.answer = b"x" * size
    assert ends.serve(ends.runtime.begin("Configure", b"")) == b"x" * size
    lengths = [len(data) for _, data in ends.runtime.frames]
    assert len(lengths) == 1 + (lengths[0] == 10 and size > 0)
    assert lengths[0] <= READER


def test_the_strict_reader_refuses_a_joined_answer() -> None:
    """The reader of these tests fails as the runtime does: the rule is tested, not assumed."""
    with connected() as (ours, theirs):
        message = struct.pack(">IIBB", 5000, 1, 2, 0) + bytes(5000)
        ours.sendall(struct.pack(">II", PLUGIN, len(message)) + message)
        with pytest.raises(FrameError):
            FakePlugin(theirs).message(PLUGIN)


@pytest.mark.parametrize(
    ("method", "service", "text"),
    [
        ("RunPodSandbox", SERVICE, "method RunPodSandbox"),
        ("Configure", "other.Service", "service other.Service"),
        ("", "", "service  is"),
        ("\x1b[31m", SERVICE, r"x1b\[31m is"),
    ],
)
def test_unknown_methods(ends: Ends, method: str, service: str, text: str) -> None:
    """A runtime with NRI 0.12 relies on code 12 for methods that a plugin does not have."""
    with pytest.raises(StatusError, match=text) as raised:
        ends.serve(ends.runtime.begin(method, b"", service=service))
    assert raised.value.code == 12
    assert ends.serve(ends.runtime.begin("Configure", b"")) == b""


def test_metadata_and_timeout(ends: Ends) -> None:
    """Metadata is ignored, and a method learns how long the runtime waits."""
    more: dict[str, Any] = {
        "metadata": [{"key": "traceparent", "value": "00-1"}],
        "timeout_nano": 2 * 10**9,
    }
    assert ends.serve(ends.runtime.begin("Configure", b"a", **more)) == b""
    assert ends.serve(ends.runtime.begin("Configure", b"b", timeout_nano=-1)) == b""
    assert ends.calls.seen == [(b"a", 2.0), (b"b", 0.0)]


def test_pipelined_calls(ends: Ends) -> None:
    """Calls that arrive together are answered in their order."""
    streams = [ends.runtime.begin("Configure", str(index).encode()) for index in range(300)]
    for stream in streams:
        while True:
            try:
                ends.runtime.link.settimeout(0.01)
                assert ends.runtime.answer(stream) == b""
                break
            except TimeoutError:
                ends.peer.step()
    assert [data for data, _ in ends.calls.seen] == [str(index).encode() for index in range(300)]


def test_data_of_four_mebibytes(ends: Ends) -> None:
    """Data of exactly the limit is served; above it, the call fails and the next one works."""
    head = len(_request(b"x" * LARGEST_DATA)) - LARGEST_DATA
    for size, code in ((LARGEST_DATA - head, 0), (LARGEST_DATA - head + 1, 8)):
        data = _request(b"x" * size)
        message = memoryview(_message(data))
        for at in range(0, len(message), 1 << 16):
            part = message[at : at + (1 << 16)]
            ends.runtime.link.sendall(struct.pack(">II", PLUGIN, len(part)) + part)
            ends.peer.step()
        if code:
            with pytest.raises(StatusError, match="4 MiB") as raised:
                ends.runtime.answer(1)
            assert raised.value.code == code
        else:
            assert ends.runtime.answer(1) == b""
    assert [len(data) for data, _ in ends.calls.seen] == [LARGEST_DATA - head]
    assert ends.serve(ends.runtime.begin("Configure", b"")) == b""


def test_large_answer_is_an_error(ends: Ends) -> None:
    """An answer above the limit is a status: the runtime would drop the connection."""
    ends.calls.answer = b"x" * LARGEST_DATA
    with pytest.raises(StatusError) as raised:
        ends.serve(ends.runtime.begin("Configure", b""))
    assert raised.value.code == 8


def test_malformed_request(ends: Ends) -> None:
    """A request that is not protobuf is answered, and the connection goes on."""
    message = _message(b"\x0a\xff", stream=9)
    ends.runtime.link.sendall(struct.pack(">II", PLUGIN, len(message)) + message)
    with pytest.raises(StatusError, match="not protobuf") as raised:
        ends.serve(9)
    assert raised.value.code == 3
    assert ends.serve(ends.runtime.begin("Configure", b"")) == b""


def test_other_messages_are_ignored(ends: Ends) -> None:
    """Data of a stream, answers to no call, and unknown types change nothing."""
    for connection, kind in ((PLUGIN, 2), (PLUGIN, 3), (PLUGIN, 99), (RUNTIME, 1), (RUNTIME, 2)):
        ends.runtime.send(connection, 55, kind, b"\x0a\xff")
    assert ends.serve(ends.runtime.begin("Configure", b"")) == b""


def test_status_of_a_call(ends: Ends) -> None:
    """A call that the runtime refuses ends with its text, on one line and of limited length."""
    done: list[Message | CallError] = []
    ends.peer.call("service", "Method", b"", done.append)
    ends.peer.call("service", "Method", b"", done.append)
    status = {"code": 5, "message": "no\n" + "x" * 100_000}
    answer = nri_api.new("Response", status=status).SerializeToString()
    ends.runtime.send(RUNTIME, 3, 2, answer)
    while not done:
        ends.peer.step()
    (error,) = done
    assert isinstance(error, CallError)
    assert (error.code, str(error)[:5]) == (5, r"no\nx")
    assert len(str(error)) < 10_000


def test_streams_are_odd(ends: Ends) -> None:
    """Streams of own calls are odd numbers in ascending order."""
    for stream in (1, 3, 5):
        ends.peer.call("service", "Method", b"", lambda _: None)
        assert ends.runtime.message(RUNTIME)[0] == stream


def test_end_of_connection(ends: Ends) -> None:
    ends.runtime.close()
    with pytest.raises(MuxClosedError):
        ends.peer.step()
