# SPDX-License-Identifier: Apache-2.0
"""NRI's multiplexer: two connections in one Unix socket.

A frame is connection id (u32, big endian), length (u32), payload. The payloads of a connection are
a stream of bytes: a frame ends anywhere.

The runtime's reader is stricter than that. It reads one frame at a time into a buffer of 4096
bytes, and fails with ENOMEM if the frame does not fit; the data after a message header it reads
into a buffer of the data's size. So a message of more than 4096 bytes is sent as two frames, the
header and the data. Smaller chunks would overflow its queue of 256 frames.
Source: github.com/containerd/nri, pkg/net/multiplex.
"""

from __future__ import annotations

from struct import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

PLUGIN, RUNTIME = 1, 2  # connection ids: the plugin serves the first, the runtime the second
LARGEST_JOINED = 4096  # bytes of a frame that begins with a message header
_HEADER = Struct(">II")
_READ = 1 << 18  # bytes
_TIMEOUT = 5.0  # seconds, for a peer that does not read


class MuxClosedError(ConnectionError):
    """The peer has closed the socket."""


class Mux:
    """The frames of a connected socket."""

    def __init__(self, trunk: socket.socket) -> None:
        trunk.settimeout(_TIMEOUT)
        self._trunk = trunk
        self._head = b""  # of the next frame
        self._connection = 0
        self._left = 0  # bytes of the current frame

    def read(self) -> list[tuple[int, bytes]]:
        """Return (connection, bytes) as they arrive, without frames of unknown connections.

        Raises OSError if the connection ends, or after the time limit.
        """
        data = self._trunk.recv(_READ)
        if not data:
            raise MuxClosedError("the runtime has closed the connection")
        found: list[tuple[int, bytes]] = []
        view, at = memoryview(data), 0
        while at < len(data):
            if not self._left:
                at = self._read_head(view, at)
                continue
            part = view[at : at + self._left]
            at += len(part)
            self._left -= len(part)
            if self._connection in (PLUGIN, RUNTIME):
                found.append((self._connection, bytes(part)))
        return found

    def _read_head(self, view: memoryview, at: int) -> int:
        """Take the rest of a frame's header, or a part of it; return the position after it."""
        end = at + _HEADER.size - len(self._head)
        self._head += bytes(view[at:end])
        if len(self._head) == _HEADER.size:
            self._connection, self._left = _HEADER.unpack(self._head)
            self._head = b""
        return min(end, len(view))

    def write(self, connection: int, head: bytes, data: bytes) -> None:
        """Write one message of a connection. Raises OSError."""
        is_small = len(head) + len(data) <= LARGEST_JOINED
        parts = [head + data] if is_small else [head, data]
        self._trunk.sendall(b"".join(_HEADER.pack(connection, len(part)) + part for part in parts))

    def fileno(self) -> int:
        return self._trunk.fileno()

    def close(self) -> None:
        self._trunk.close()
