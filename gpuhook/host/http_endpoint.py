# SPDX-License-Identifier: Apache-2.0
"""The HTTP endpoint of Prometheus metrics: GET /metrics, by default on loopback.

It runs in an event loop. The size and time of a request and the number of connections are bounded,
and each connection gets one answer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gpuhook.errors import fault
from gpuhook.host.logs import logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.errors import GpuhookError

PATH = "/metrics"
_MAX_HEAD = 16 << 10
_MAX_CONNECTIONS = 16
_TIMEOUT = 5.0  # seconds, to read a request and to write an answer
_PLAIN = "text/plain; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    content_type: str = _PLAIN


class HttpEndpoint:
    """The endpoint at `address`, "host:port"; "" for no endpoint. A subclass gives the metrics."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics and their content type for a client that accepts these types."""
        raise NotImplementedError

    async def start(self) -> GpuhookError | None:
        """Start serving, and return the fault if that fails.

        GH1890: the port is in use, or the machine has no such address. GH1891: not an address.
        """
        if not self._address:
            return None
        host_and_port = parse_address(self._address)
        if host_and_port is None:
            return fault("GH1891", address=self._address)
        host, port = host_and_port
        try:
            self._server = await asyncio.start_server(
                self._on_connection, host or None, port, limit=_MAX_HEAD
            )
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            return fault("GH1890", address=self._address, reason=reason)
        return None

    @property
    def port(self) -> int | None:
        """The port in use, None without one."""
        sockets = self._server.sockets if self._server else ()
        return int(sockets[0].getsockname()[1]) if sockets else None

    async def stop(self) -> None:
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # drain() then waits until the kernel has all data, so that close() loses none.
        writer.transport.set_write_buffer_limits(0)
        try:
            is_head = False
            try:
                if len(self._connections) > _MAX_CONNECTIONS:
                    answer = _Answer(503, b"too many connections\n")
                else:
                    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _TIMEOUT)
                    is_head = head.startswith(b"HEAD ")
                    answer = await self._answer(head)
            except asyncio.LimitOverrunError:
                answer = _Answer(431, b"the head of the request is too large\n")
            writer.write(_response(answer, with_body=not is_head))
            await asyncio.wait_for(writer.drain(), _TIMEOUT)
        except (asyncio.IncompleteReadError, asyncio.TimeoutError, OSError):
            writer.transport.abort()  # the client has gone, or is too slow
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        else:
            writer.close()

    async def _answer(self, head: bytes) -> _Answer:
        request, _, headers = head.decode("latin-1").partition("\r\n")
        words = request.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _Answer(400, b"not a request of HTTP/1\n")
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _Answer(405, b"only GET and HEAD\n")
        if target.partition("?")[0] != PATH:
            return _Answer(404, b"the metrics are at /metrics\n")
        try:
            body, content_type = await self.metrics(_header(headers, "accept"))
        except Exception as error:  # a bug must not end the endpoint
            logger().error("metrics failed", exc_info=error)
            return _Answer(500, b"cannot collect the metrics; see the log\n")
        return _Answer(200, body, content_type)


def parse_address(address: str) -> tuple[str, int] | None:
    """Return (host, port) of "127.0.0.1:9395", "[::1]:9395" or ":9395", else None.

    An empty host is every address of the machine.
    """
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    if not colon or not port.isascii() or not port.isdigit() or len(port.lstrip("0")) > 5:
        return None
    number = int(port.lstrip("0") or "0")
    return (host, number) if number <= 65535 else None


def _header(headers: str, name: str) -> str:
    for line in headers.split("\r\n"):
        key, _, value = line.partition(":")
        if key.strip().lower() == name:
            return value.strip()
    return ""


def _response(answer: _Answer, *, with_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (answer.body if with_body else b"")
