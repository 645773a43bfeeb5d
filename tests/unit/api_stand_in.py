# SPDX-License-Identifier: Apache-2.0
"""A small HTTPS API server for tests, with answers that a test sets."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseServer
from typing import Any

import pytest

from gpuhook.device_plugin.api_server.service_account import ApiAccess

Answer = Callable[["Asked"], None]


def certificate(directory: Path, name: str = "ca") -> tuple[Path, Path]:
    """Make a key and a self-signed certificate for 127.0.0.1, and return their paths."""
    key, made = directory / f"{name}.key", directory / f"{name}.crt"
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    words = f"""openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2
        -subj /CN=test -addext subjectAltName=IP:127.0.0.1 -keyout {name}.key -out {name}.crt"""
    subprocess.run(words.split(), check=True, capture_output=True, cwd=directory)
    return key, made


class Asked(BaseHTTPRequestHandler):
    """One request, with methods that answer it."""

    protocol_version = "HTTP/1.1"
    server: BaseServer
    body: Any = None

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (OSError, ValueError):  # the client closed the connection
            self.close_connection = True

    def _take(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        self.body = json.loads(self.rfile.read(size)) if size else None
        assert isinstance(self.server, Server)
        stand_in = self.server.stand_in
        with stand_in.lock:
            stand_in.asked.append(self)
            answer = stand_in.answers.pop(0) if stand_in.answers else stand_in.otherwise
        answer(self)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _take

    def reply(self, found: object, status: int = 200) -> None:
        data = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def begin(self) -> None:
        """Begin a stream of lines, as in a watch."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def line(self, found: object) -> None:
        data = json.dumps(found).encode() + b"\n"
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # its name there
        return


class Server(ThreadingHTTPServer):
    daemon_threads = True
    stand_in: ApiStandIn

    def handle_error(self, request: object, client_address: object) -> None:
        return  # the client does not trust the certificate


@dataclass
class ApiStandIn:
    """The server: it returns `answers` one after the other, then always `otherwise`."""

    access: ApiAccess
    otherwise: Answer
    answers: list[Answer] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def status(code: int, message: str) -> Answer:
    return lambda asked: asked.reply({"kind": "Status", "code": code, "message": message}, code)


@contextmanager
def serving(directory: Path, *, secret: str = "ca", trusted: str = "ca") -> Iterator[ApiStandIn]:
    """Serve HTTPS with the certificate `secret`, and give access that trusts `trusted`."""
    pairs = {name: certificate(directory, name) for name in {secret, trusted}}
    (directory / "token").write_text("first\n", encoding="ascii")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pairs[secret][1], pairs[secret][0])
    server = Server(("127.0.0.1", 0), Asked)
    # The handler thread does the handshake: a stalled client does not block the others.
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    port = int(server.server_address[1])
    access = ApiAccess("127.0.0.1", port, str(directory / "token"), str(pairs[trusted][1]))
    server.stand_in = ApiStandIn(access, status(404, "no such thing"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.stand_in
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
