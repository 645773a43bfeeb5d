# SPDX-License-Identifier: Apache-2.0
"""The Prometheus endpoint: GET /metrics over HTTP, on loopback unless told otherwise.

It is part of the plugin's loop: no thread waits, and nothing is done between two questions. Heads
of requests are bounded in size and time, connections in number; each has one answer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from gpuhook.device_plugin import daemon_thread
from gpuhook.device_plugin.metrics import exposition
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.metrics.counters import Observations
    from gpuhook.device_plugin.metrics.scrape import Scrape
    from gpuhook.errors import GpuhookError

PATH = "/metrics"
_MAX_HEAD = 16 << 10
_MAX_CONNECTIONS = 16
_SECONDS = 5.0  # for a head to come, and for an answer to go
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


class MetricsSource:
    """The endpoint at `address`, "host:port"; an empty address is none."""

    def __init__(self, address: str, scrape: Scrape, observations: Observations) -> None:
        self._wanted = address
        self._scrape = scrape
        self._observations = observations
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._pulling: asyncio.Task[exposition.Pulled] | None = None

    async def start(self) -> GpuhookError | None:
        """Begin to serve; returns the fault, for a warning, where that cannot be.

        GH1890: somebody else has the port, or there is no such address. GH1891: it is no address.
        """
        if not self._wanted:
            return None
        place = parsed(self._wanted)
        if place is None:
            return fault("GH1891", address=self._wanted)
        host, port = place
        try:
            self._server = await asyncio.start_server(
                self._connected, host or None, port, limit=_MAX_HEAD
            )
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            return fault("GH1890", address=self._wanted, reason=reason)
        return None

    @property
    def port(self) -> int | None:
        """Return the port that is served, None if there is none."""
        sockets = self._server.sockets if self._server else ()
        return int(sockets[0].getsockname()[1]) if sockets else None

    async def stop(self) -> None:
        """End the endpoint, and the answers that are on their way."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        waiting = [*self._connections, *([self._pulling] if self._pulling else [])]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # All that is not with the kernel yet is waited for, so that closing leaves nothing to do.
        writer.transport.set_write_buffer_limits(0)
        try:
            is_head = False
            try:
                if len(self._connections) > _MAX_CONNECTIONS:
                    answer = _Answer(503, b"too many connections\n")
                else:
                    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _SECONDS)
                    is_head = head.startswith(b"HEAD ")
                    answer = await self._answer(head)
            except asyncio.LimitOverrunError:
                answer = _Answer(431, b"the head of the request is too large\n")
            writer.write(_response(answer, with_body=not is_head))
            await asyncio.wait_for(writer.drain(), _SECONDS)
        except (asyncio.IncompleteReadError, asyncio.TimeoutError, OSError):
            writer.transport.abort()  # who asked has gone, or takes too long
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        else:
            writer.close()

    async def _answer(self, head: bytes) -> _Answer:
        request, _, rest = head.decode("latin-1").partition("\r\n")
        words = request.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _Answer(400, b"not a request of HTTP/1\n")
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _Answer(405, b"only GET and HEAD\n")
        if target.partition("?")[0] != PATH:
            return _Answer(404, b"the metrics are at /metrics\n")
        try:
            pulled = await asyncio.shield(self._pull())
            counted = self._observations.counted()
            text = partial(exposition.text, pulled, counted, _header(rest, "accept"))
            body, content_type = await daemon_thread.begin(text, "gpuhook-metrics")
        except Exception as error:  # of ours; the plugin goes on
            from gpuhook.host.logs import logger

            logger().error("metrics failed", exc_info=error)
            return _Answer(500, b"the metrics could not be put together; see the log\n")
        return _Answer(200, body, content_type)

    def _pull(self) -> asyncio.Task[exposition.Pulled]:
        """Return the task that pulls the facts: one for all who ask at the same time."""
        if self._pulling is None or self._pulling.done():
            self._pulling = asyncio.get_running_loop().create_task(self._scrape.pull())
        return self._pulling


def parsed(address: str) -> tuple[str, int] | None:
    """Return (host, port) of "127.0.0.1:9395", "[::1]:9395" or ":9395", None of anything else.

    An empty host is every address of the machine.
    """
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        return None
    return host, int(port)


def _header(lines: str, name: str) -> str:
    for line in lines.split("\r\n"):
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
