# SPDX-License-Identifier: Apache-2.0
"""ttrpc over the multiplexer: serves the runtime's calls, and makes calls of the runtime.

A message is data length (u32, big endian), stream id (u32), type, flags, data. The caller chooses
odd stream ids in ascending order; the answer has the same id. Calls are served one at a time, as
the runtime makes them. Metadata and unknown fields are ignored.
Source: github.com/containerd/ttrpc, PROTOCOL.md.
"""

from __future__ import annotations

from struct import Struct

from gpuhook.errors import printable
from gpuhook.host.hot.engine_log import as_fault
from gpuhook.nri.wire import mux, protobuf_wire
from gpuhook.nri.wire.protobuf_wire import Message, WireError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    from gpuhook.nri.wire.mux import Mux

    # Takes the request and the seconds that the caller waits, 0 without a limit.
    Method: TypeAlias = Callable[[memoryview, float], bytes]

LARGEST_DATA = 4 << 20
UNKNOWN, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED = 2, 3, 8, 12  # gRPC's codes
REQUEST, RESPONSE = 1, 2
_HEADER = Struct(">IIBB")
_MAX_TEXT = 8192  # of a status: the runtime puts it into an event of the pod


class CallError(Exception):
    """A call that failed, with its status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class MessageStream:
    """The messages in one connection's stream of bytes."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._skipped = 0  # bytes of a message that is too large

    def messages(self, data: bytes) -> Iterator[tuple[int, int, memoryview | None]]:
        """Yield (stream id, type, data) of each message that `data` completes.

        The data of a message above the limit is dropped: None.
        """
        self._held += data
        while True:
            dropped = min(self._skipped, len(self._held))
            del self._held[:dropped]
            self._skipped -= dropped
            if self._skipped or len(self._held) < _HEADER.size:
                return
            size, stream, kind, _ = _HEADER.unpack_from(self._held)
            if size > LARGEST_DATA:
                del self._held[: _HEADER.size]
                self._skipped = size
                yield stream, kind, None
                continue
            end = _HEADER.size + size
            if len(self._held) < end:
                return
            message = memoryview(bytes(self._held[_HEADER.size : end]))
            del self._held[:end]
            yield stream, kind, message


class Peer:
    """Both connections: the services that this side offers, and the calls of the other side."""

    def __init__(self, link: Mux, services: Mapping[str, Mapping[str, Method]]) -> None:
        self._link = link
        self._services = services
        self._incoming, self._answers = MessageStream(), MessageStream()
        self._next_stream = 1
        self._done: dict[int, Callable[[Message | CallError], None]] = {}

    def step(self) -> None:
        """Wait for bytes, and serve what they complete. Raises OSError, TimeoutError, WireError."""
        for connection, data in self._link.read():
            if connection == mux.PLUGIN:
                for stream, kind, message in self._incoming.messages(data):
                    if kind == REQUEST:
                        self._answer(stream, message)
            else:
                for stream, kind, message in self._answers.messages(data):
                    if kind == RESPONSE:
                        self._end_call(stream, message)

    def call(
        self, service: str, method: str, data: bytes, done: Callable[[Message | CallError], None]
    ) -> None:
        """Begin a call of the runtime; step() calls `done` with the answer. Raises OSError."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        self._done[stream] = done
        request = (
            protobuf_wire.encode_text(1, service)
            + protobuf_wire.encode_text(2, method)
            + protobuf_wire.encode_bytes(3, data)
        )
        self._write(mux.RUNTIME, stream, REQUEST, request)

    def _end_call(self, stream: int, data: memoryview | None) -> None:
        done = self._done.pop(stream, None)
        if done is None:
            return
        if data is None:
            done(CallError(RESOURCE_EXHAUSTED, "the answer is larger than 4 MiB"))
            return
        answer = Message(data)
        status = answer.message(1)
        if status.integer(1):
            done(CallError(status.integer(1), printable(status.text(2), _MAX_TEXT)))
        else:
            done(answer)

    def _answer(self, stream: int, data: memoryview | None) -> None:
        try:
            answer = self._call(data)
        except CallError as error:
            answer = _status(error.code, str(error))
        except WireError as error:
            answer = _status(INVALID_ARGUMENT, f"the message is not protobuf: {error}")
        except Exception as error:  # a bug here must not end the connection
            found = as_fault(error, "the host")
            answer = _status(UNKNOWN, f"{found.code}: {found.message}")
        if len(answer) > LARGEST_DATA:
            answer = _status(RESOURCE_EXHAUSTED, "the answer is larger than 4 MiB")
        self._write(mux.PLUGIN, stream, RESPONSE, answer)

    def _call(self, data: memoryview | None) -> bytes:
        """Return the Response to a Request; raises CallError for one that no method serves."""
        if data is None:
            raise CallError(RESOURCE_EXHAUSTED, "the message is larger than 4 MiB")
        request = Message(data)
        service, name = request.text(1), request.text(2)
        methods = self._services.get(service)
        if methods is None:
            raise CallError(UNIMPLEMENTED, f"service {printable(service)} is not implemented")
        method = methods.get(name)
        if method is None:
            raise CallError(UNIMPLEMENTED, f"method {printable(name)} is not implemented")
        result = method(request.raw(3), max(0, request.integer(4)) / 1e9)
        return protobuf_wire.encode_bytes(2, result) if result else b""

    def _write(self, connection: int, stream: int, kind: int, data: bytes) -> None:
        self._link.write(connection, _HEADER.pack(len(data), stream, kind, 0), data)


def _status(code: int, text: str) -> bytes:
    line = text.encode("utf-8", "replace")[:_MAX_TEXT].decode("utf-8", "ignore")
    status = protobuf_wire.encode_integer(1, code) + protobuf_wire.encode_text(2, line)
    return protobuf_wire.encode_bytes(1, status)
