# SPDX-License-Identifier: Apache-2.0
"""A registry for `docker push` on the node of a test, run by its Python: it keeps no image."""

from __future__ import annotations

import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 5000


class Registry(BaseHTTPRequestHandler):
    """Accepts each layer and manifest; HEAD finds what was sent."""

    protocol_version = "HTTP/1.1"
    length = 1  # of the last body
    known: dict[str, int] = {}  # noqa: RUF012 # of all requests
    sent: dict[str, bytes] = {}  # noqa: RUF012

    def do_GET(self) -> None:
        self.answer(200)

    def do_HEAD(self) -> None:
        digest = self.path.rpartition("/")[2]
        self.answer(200 if digest in self.known else 404, self.known.get(digest, 0))

    def do_POST(self) -> None:
        self.answer(202, place=f"{self.path}{id(self)}")

    def do_PATCH(self) -> None:
        self.sent[self.path] = self.body()
        self.length = len(self.sent[self.path])
        self.answer(202, place=self.path)

    def do_PUT(self) -> None:
        body = self.body()
        place, _, query = self.path.partition("?digest=")
        data = self.sent.pop(place, b"") or body
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.known[query.replace("%3A", ":") or digest] = len(data)
        self.answer(201, place=place, digest=digest)

    def body(self) -> bytes:
        """Return the body, of which Docker does not know the size of a layer."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = bytearray()
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(data)

    def answer(self, status: int, size: int = 0, place: str = "", digest: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(size))
        if place:
            self.send_header("Location", place)
            self.send_header("Range", f"0-{self.length - 1}")
            self.send_header("Docker-Upload-UUID", "one")
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", PORT), Registry).serve_forever()
