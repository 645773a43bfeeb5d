# SPDX-License-Identifier: Apache-2.0
"""The API server: HTTP in front of the store, and faults that a test sets.

with serving(tmp_path) as cluster:
    cluster.store.add(node("node1"))
    server = ApiServer(cluster.access)
"""

from __future__ import annotations

import json
import select
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gpuhook.device_plugin.api_server.service_account import ApiAccess
from tests.cluster_api.api_versions import to_served, to_stored
from tests.cluster_api.object_kinds import BY_PLURAL, DRA, Kind, Object, matches, parsed_selector
from tests.cluster_api.object_store import Change, ObjectStore, RefusalError
from tests.unit.api_stand_in import certificate

WRITES = ("create", "update", "patch", "delete", "deletecollection")


@dataclass(frozen=True)
class Call:
    """A call of a client: "create", "resourceslices". `part` is "status" for the subresource."""

    verb: str
    plural: str
    name: str = ""
    namespace: str = ""
    part: str = ""
    version: str = ""  # of resource.k8s.io
    is_dry: bool = False
    agent: str = ""
    token: str = ""


@dataclass
class Fault:
    """What happens to the next `count` calls of a verb (plural, name), instead of their answer.

    `status` refuses them; `is_lost` does what they say, and closes the connection; `pause` answers
    after so many seconds.
    """

    verb: str
    plural: str = ""
    count: int = 1
    status: int = 0
    is_lost: bool = False
    pause: float = 0.0
    name: str = ""

    def fits(self, call: Call) -> bool:
        is_named = self.plural in ("", call.plural) and self.name in ("", call.name)
        return self.count > 0 and self.verb == call.verb and is_named


@dataclass
class Cluster:
    """The server of a test: its store, the calls so far, and its faults.

    `versions` are those of resource.k8s.io. `tokens`: others get 401; None accepts any.
    `forbidden` are (verb, plural) that get 403. While `holds_watches`, a watch is silent.
    """

    access: ApiAccess
    store: ObjectStore = field(default_factory=ObjectStore)
    versions: tuple[str, ...] = ("v1", "v1beta2", "v1beta1")
    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    tokens: set[str] | None = None
    holds_watches: bool = False
    watches: int = 0  # open ones
    closed: int = 0  # a watch ends when this number rises
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, *verbs: str, plural: str = "resourceslices", dry: bool = False) -> int:
        """Return the number of calls of these verbs."""
        with self.lock:
            found = [c for c in self.calls if c.verb in verbs and c.plural == plural]
        return sum(call.is_dry == dry for call in found)

    def writes(self, plural: str = "resourceslices") -> int:
        return self.count(*WRITES, plural=plural)

    def close_watches(self) -> None:
        with self.store.changed:
            self.closed += 1
            self.store.changed.notify_all()

    def release_watches(self) -> None:
        with self.store.changed:
            self.holds_watches = False
            self.store.changed.notify_all()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    cluster: Cluster
    is_ended = False

    def handle_error(self, request: object, client_address: object) -> None:
        return  # a client that goes away


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: BaseServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # its name there
        return

    @property
    def cluster(self) -> Cluster:
        assert isinstance(self.server, _Server)
        return self.server.cluster

    def _handle(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        address = urlsplit(self.path)
        self.query = {name: values[-1] for name, values in parse_qs(address.query).items()}
        words = [word for word in address.path.split("/") if word]
        try:
            self._authenticate()
            if not self._discovery(words):
                self._answer(*self._target(words), json.loads(body) if body else {})
        except RefusalError as error:
            self._status(error.status, error.reason, str(error))
        except (ConnectionError, BrokenPipeError, ssl.SSLError):
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle

    def _authenticate(self) -> None:
        self.token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        tokens = self.cluster.tokens
        if not self.token or (tokens is not None and self.token not in tokens):
            raise RefusalError(401, "Unauthorized", "Unauthorized")

    def _discovery(self, words: list[str]) -> bool:
        cluster = self.cluster
        if words == ["version"]:
            minor = cluster.store.minor
            self._reply({"major": "1", "minor": str(minor), "gitVersion": f"v1.{minor}.2"})
        elif words == ["apis", DRA]:
            if not cluster.versions:
                raise RefusalError(404, "NotFound", "the server could not find the resource")
            listed = [{"groupVersion": f"{DRA}/{v}", "version": v} for v in cluster.versions]
            self._reply({"kind": "APIGroup", "apiVersion": "v1", "name": DRA, "versions": listed})
        else:
            return False
        return True

    def _target(self, words: list[str]) -> tuple[Kind, Call]:
        """Return the kind and the call that a path and the method are."""
        version = ""
        if words[:2] == ["api", "v1"]:
            group, rest = "", words[2:]
        elif words[:2] == ["apis", DRA] and words[2:3] and words[2] in self.cluster.versions:
            group, version, rest = DRA, words[2], words[3:]
        else:
            raise RefusalError(404, "NotFound", "the server could not find the resource")
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        kind = BY_PLURAL.get(rest[0] if rest else "")
        if kind is None or kind.group != group:
            raise RefusalError(404, "NotFound", "the server could not find the resource")
        name, part = (*rest[1:], "", "")[:2]
        verbs = {"POST": "create", "PUT": "update", "PATCH": "patch"}
        verb = verbs.get(self.command, "")
        if self.command == "GET":
            verb = "get" if name else "watch" if self.query.get("watch") == "true" else "list"
        elif self.command == "DELETE":
            verb = "delete" if name else "deletecollection"
        dry, agent = "dryRun" in self.query, self.headers.get("User-Agent", "")
        call = Call(verb, kind.plural, name, namespace, part, version, dry, agent, self.token)
        with self.cluster.lock:
            self.cluster.calls.append(call)
        return kind, call

    def _answer(self, kind: Kind, call: Call, body: Any) -> None:
        if (call.verb, call.plural) in self.cluster.forbidden:
            message = f"{call.plural} is forbidden: cannot {call.verb} resource"
            raise RefusalError(403, "Forbidden", message)
        fault = self._fault(call)
        if fault is not None and fault.status:
            raise RefusalError(fault.status, "InternalError", f"fault {fault.status} of the test")
        if fault is not None and fault.pause:
            time.sleep(fault.pause)
        if call.verb == "watch":
            return self._watch(kind, call)
        status = 201 if call.verb == "create" else 200
        found = self._done(kind, call, body)
        if fault is not None and fault.is_lost:
            self.close_connection = True
            return None
        return self._reply(found, status)

    def _fault(self, call: Call) -> Fault | None:
        with self.cluster.lock:
            fault = next((one for one in self.cluster.faults if one.fits(call)), None)
            if fault is not None:
                fault.count -= 1
        return fault

    def _done(self, kind: Kind, call: Call, body: Any) -> Object:
        store, namespace = self.cluster.store, call.namespace
        if call.verb == "list":
            return self._list(kind, call)
        if call.verb == "deletecollection":
            for one in self._selected(kind, call):
                store.delete(kind, one["metadata"].get("namespace", ""), one["metadata"]["name"])
            return {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        if call.verb == "get":
            return self._served(kind, store.read(kind, namespace, call.name), call.version)
        if call.verb == "delete":
            wanted = body.get("preconditions")
            gone = store.delete(kind, namespace, call.name, wanted)
            return self._served(kind, gone, call.version)
        if call.verb == "patch":
            body = self._patched(kind, call, body)
        try:
            new = to_stored(kind.name, body, call.version)
        except ValueError as error:
            raise RefusalError(400, "BadRequest", str(error)) from error
        if call.verb == "create":
            made = store.create(kind, namespace, new, dry=call.is_dry)
        else:
            made = store.update(kind, namespace, call.name, new, part=call.part, dry=call.is_dry)
        return self._served(kind, made, call.version)

    def _patched(self, kind: Kind, call: Call, patch: Any) -> Object:
        kind_of_patch = self.headers.get("Content-Type", "")
        if kind_of_patch != "application/merge-patch+json":
            raise RefusalError(415, "UnsupportedMediaType", f"{kind_of_patch} is not supported")
        old = self.cluster.store.read(kind, call.namespace, call.name)
        merged: Object = merge(to_served(kind.name, old, call.version), patch)
        return merged

    def _selected(self, kind: Kind, call: Call) -> list[Object]:
        try:
            selector = parsed_selector(self.query.get("fieldSelector", ""), kind)
        except ValueError as error:
            raise RefusalError(400, "BadRequest", str(error)) from error
        if call.namespace:
            selector["metadata.namespace"] = call.namespace
        return [one for one in self.cluster.store.listed(kind.plural) if matches(one, selector)]

    def _list(self, kind: Kind, call: Call) -> Object:
        with self.cluster.store.changed:
            items = self._selected(kind, call)
            version = str(self.cluster.store.version)
        return {
            "kind": f"{kind.name}List",
            "apiVersion": f"{DRA}/{call.version}" if call.version else "v1",
            "metadata": {"resourceVersion": version},
            "items": [self._served(kind, one, call.version) for one in items],
        }

    def _served(self, kind: Kind, one: Object, version: str) -> Object:
        if "as=PartialObjectMetadata" in self.headers.get("Accept", ""):
            head = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
            return {**head, "metadata": one["metadata"]}
        return to_served(kind.name, one, version)

    def _watch(self, kind: Kind, call: Call) -> None:
        store, cluster = self.cluster.store, self.cluster
        end = time.monotonic() + float(self.query.get("timeoutSeconds", "60"))
        selector = parsed_selector(self.query.get("fieldSelector", ""), kind)
        if call.namespace:
            selector["metadata.namespace"] = call.namespace
        version = int(self.query.get("resourceVersion") or 0)
        with store.changed:
            current = self._selected(kind, call) if version == 0 else []
            at, closed = (store.version if version == 0 else version), cluster.closed
            if at < store.oldest:
                raise RefusalError(410, "Expired", f"too old resource version: {at}")
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with cluster.lock:
            cluster.watches += 1
        try:
            for one in current:
                self._line("ADDED", self._served(kind, one, call.version))
            self._follow(kind, call, selector, (at, closed, end))
        finally:
            with cluster.lock:
                cluster.watches -= 1
        self.wfile.write(b"0\r\n\r\n")

    def _follow(
        self, kind: Kind, call: Call, selector: Object, start: tuple[int, int, float]
    ) -> None:
        """Send the changes until the end of the watch."""
        store, (at, closed, end) = self.cluster.store, start
        while time.monotonic() < end and self.cluster.closed == closed:
            with store.changed:
                if getattr(self.server, "is_ended", False) or self._is_abandoned():
                    return
                try:
                    new = [] if self.cluster.holds_watches else list(store.since(kind, at))
                except RefusalError as error:
                    self._line("ERROR", status_object(error.status, error.reason, str(error)))
                    return
                if not new:
                    store.changed.wait(min(0.1, max(0.0, end - time.monotonic())))
            for change in new:
                at = change.version
                self._send_change(kind, call, selector, change)

    def _is_abandoned(self) -> bool:
        """Return whether the client of a watch has gone: it sends nothing until then."""
        return bool(select.select([self.connection], [], [], 0)[0])

    def _send_change(self, kind: Kind, call: Call, selector: Object, change: Change) -> None:
        if matches(change.object, selector):
            self._line(change.type, self._served(kind, change.object, call.version))

    def _line(self, change: str, one: Object) -> None:
        data = json.dumps({"type": change, "object": one}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _reply(self, found: object, status: int = 200) -> None:
        data = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _status(self, code: int, reason: str, message: str) -> None:
        self._reply(status_object(code, reason, message), code)


def status_object(code: int, reason: str, message: str) -> Object:
    """Return the object of a refusal."""
    head = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return {**head, "code": code, "reason": reason, "message": message}


def merge(old: Any, patch: Any) -> Any:
    """Return a document after a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    found = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merge(found.get(name), value)
    return found


@contextmanager
def serving(directory: Path, *, secure: bool = False, token: str = "first") -> Iterator[Cluster]:
    """Serve an empty cluster, by HTTPS if `secure`; the token is in the file of its access."""
    path, ca, scheme = directory / "token", "", "http"
    path.write_text(f"{token}\n", encoding="ascii")
    server = _Server(("127.0.0.1", 0), _Handler)
    if secure:
        key, crt = certificate(directory)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(crt, key)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        ca, scheme = str(crt), "https"
    port = int(server.server_address[1])
    server.cluster = Cluster(ApiAccess("127.0.0.1", port, str(path), ca, scheme))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.cluster
    finally:
        server.is_ended = True
        server.cluster.close_watches()
        server.shutdown()
        server.server_close()
        thread.join()


def node(name: str, uid: str = "") -> Object:
    """Return a Node for the store."""
    metadata = {"name": name, **({"uid": uid} if uid else {})}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {}}
