# SPDX-License-Identifier: Apache-2.0
"""An API server for the real kubectl and helm: it keeps the objects that they send.

It validates nothing. A patch of any kind is applied as a JSON merge patch. A pod that is created
has ended at once with `POD_LOG`; a DaemonSet is rolled out; `exec` prints the words of its command.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.documented import api_objects
from tests.documented.api_objects import Object, plural

POD_LOG = "time=2026-01-01T00:00:00Z event=sharing resource=nvidia.com/gpu\n"
READY = {"currentNumberScheduled": 1, "desiredNumberScheduled": 1, "numberAvailable": 1,
         "numberReady": 1, "updatedNumberScheduled": 1, "numberMisscheduled": 0}  # fmt: skip


class ApiServer(ThreadingHTTPServer):
    """The server: `objects` by path; `metrics` are what the proxy of a pod returns, by its name."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, Object] = {}
        self.metrics: dict[str, bytes] = {}
        self.changed = threading.Condition()
        self.version = 1

    def put(self, path: str, new: Object) -> Object:
        """Keep an object, with what a server and controllers add to it."""
        metadata = new.setdefault("metadata", {})
        with self.changed:
            self.version += 1
            metadata["resourceVersion"] = str(self.version)
            metadata.setdefault("generation", 1)
            metadata.setdefault("uid", hashlib.sha256(path.encode()).hexdigest()[:32])
            metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
            if new["kind"] == "DaemonSet":
                new["status"] = {**READY, "observedGeneration": metadata["generation"]}
            if new["kind"] == "Pod" and "status" not in new:
                new["status"] = _ended(new)
            self.objects[path] = new
            self.changed.notify_all()
        return new

    def remove(self, path: str) -> Object | None:
        """Remove an object, and return it."""
        with self.changed:
            self.version += 1
            self.changed.notify_all()
            return self.objects.pop(path, None)

    def add(self, new: Object) -> None:
        """Keep an object at the path of its kind, namespace and name."""
        group = new["apiVersion"]
        path = f"/api/{group}" if group == "v1" else f"/apis/{group}"
        if "namespace" in new["metadata"]:
            path += f"/namespaces/{new['metadata']['namespace']}"
        self.put(f"{path}/{plural(new['kind'])}/{new['metadata']['name']}", new)

    def kubeconfig(self) -> Object:
        """Return the configuration with which kubectl and helm use this server."""
        address = f"http://127.0.0.1:{self.server_address[1]}"
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": address}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }


@contextmanager
def serving() -> Iterator[ApiServer]:
    """Yield a server without objects."""
    server = ApiServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ApiServer  # type: ignore[mutable-override]  # of this server only

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # its word
        """Log nothing."""

    def setup(self) -> None:
        super().setup()
        self.request.settimeout(30)

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        path, query = address.path.rstrip("/"), parse_qs(address.query)
        parts = path.split("/")
        if parts[-1] == "exec":
            return self._exec(query["command"])
        if parts[-1] == "log":
            return self._send(200, POD_LOG.encode(), "text/plain")
        if "proxy" in parts:
            name = parts[parts.index("proxy") - 1].partition(":")[0]
            return self._send(200, self.server.metrics[name], "text/plain")
        found = api_objects.discovery(path)
        if found is not None:
            return self._reply(found)
        if path.startswith("/openapi/"):
            return self._openapi(path)
        if path in self.server.objects:
            return self._reply(self.server.objects[path])
        if api_objects.is_collection(path):
            return self._collection(path, query)
        return self._missing(path)

    def do_POST(self) -> None:
        path, new = urlsplit(self.path).path, self._body()
        if path.endswith("/eviction"):
            self.server.remove(path.removesuffix("/eviction"))
            return self._reply({"kind": "Status", "apiVersion": "v1", "status": "Success"}, 201)
        if "name" not in new["metadata"]:
            new["metadata"]["name"] = f"{new['metadata']['generateName']}abcde"
        place = f"{path}/{new['metadata']['name']}"
        if place in self.server.objects:
            return self._status(409, "AlreadyExists", place)
        parts = path.split("/")
        if "namespaces" in parts[:-1]:
            new["metadata"].setdefault("namespace", parts[parts.index("namespaces") + 1])
        return self._reply(self.server.put(place, new), 201)

    def do_PUT(self) -> None:
        self._reply(self.server.put(urlsplit(self.path).path, self._body()))

    def do_PATCH(self) -> None:
        path, patch = urlsplit(self.path).path, self._body()
        if path not in self.server.objects:
            return self._missing(path)
        return self._reply(
            self.server.put(path, api_objects.merged(self.server.objects[path], patch))
        )

    def do_DELETE(self) -> None:
        path = urlsplit(self.path).path
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        removed = self.server.remove(path)
        return self._reply(removed) if removed else self._missing(path)

    def _collection(self, path: str, query: dict[str, list[str]]) -> None:
        items = api_objects.selected(self.server.objects, path, query)
        if query.get("watch", ["false"])[0] in ("true", "1"):
            return self._watch(items)
        version = str(self.server.version)
        head = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}}
        kind, group = api_objects.kind(path)
        head |= {"kind": f"{kind}List", "apiVersion": group}
        return self._reply({**head, "items": items})

    def _watch(self, items: list[Object]) -> None:
        """Send the present objects; the client ends the watch, or a timeout."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for item in items:
            data = json.dumps({"type": "MODIFIED", "object": item}).encode() + b"\n"
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()
        self.close_connection = True
        self.rfile.read(1)

    def _exec(self, words: list[str]) -> None:
        """Answer over a WebSocket: the standard output, the status, the end."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        digest = hashlib.sha1(key.encode(), usedforsecurity=False).digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(digest).decode())
        self.send_header("Sec-WebSocket-Protocol", "v5.channel.k8s.io")
        self.end_headers()
        status = json.dumps({"metadata": {}, "status": "Success"}).encode()
        for opcode, data in (
            (2, b"\x01" + " ".join(words).encode() + b"\n"),
            (2, b"\x03" + status),
            (8, struct.pack(">H", 1000)),
        ):
            self.wfile.write(bytes([0x80 | opcode, len(data)]) + data)
        self.wfile.flush()
        self.close_connection = True
        self.rfile.read(1)

    def _openapi(self, path: str) -> None:
        """Describe no kind: clients then validate nothing themselves."""
        if path.startswith("/openapi/v3"):
            return self._reply({"paths": {}})
        return self._send(200, b"", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")

    def _body(self) -> Any:
        size = int(self.headers.get("Content-Length") or 0)
        return api_objects.decoded(self.rfile.read(size)) if size else None

    def _missing(self, path: str) -> None:
        self._status(404, "NotFound", f"{path} not found")

    def _status(self, code: int, reason: str, message: str) -> None:
        words = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
        self._reply({**words, "reason": reason, "message": message}, code)

    def _reply(self, document: Object, code: int = 200) -> None:
        self._send(code, json.dumps(document).encode(), "application/json")

    def _send(self, code: int, body: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _ended(pod: Object) -> Object:
    statuses = [
        {
            "name": container["name"],
            "image": container["image"],
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
        }
        for container in pod["spec"]["containers"]
    ]
    return {"phase": "Succeeded", "containerStatuses": statuses}
