# SPDX-License-Identifier: Apache-2.0
"""The runtime's end of an NRI socket: it listens, and calls the plugin that connects.

Its reader is as strict as the runtime's own: a frame that begins with a message header must fit
into 4096 bytes.
"""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.nri import nri_api

PLUGIN, RUNTIME = 1, 2  # connections
REQUEST, RESPONSE = 1, 2  # types of messages
PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"
READER = 4096  # bytes of the runtime's buffer
TIMEOUT = 60.0  # seconds: no test asserts a time
Cut = Callable[[bytes], Iterator[bytes]]  # frames of the bytes of a message


class StatusError(Exception):
    """The plugin has answered with a status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text


class FrameError(Exception):
    """The plugin has written a frame that the runtime cannot read: ENOMEM there."""


def joined(message: bytes) -> Iterator[bytes]:
    """Yield header and data as one frame."""
    yield message


def split(message: bytes) -> Iterator[bytes]:
    """Yield header and data as two frames, as the runtime writes them."""
    yield message[:10]
    if message[10:]:
        yield message[10:]


class FakePlugin:
    """A connected plugin, as the runtime sees it. `cut` makes frames of each message."""

    def __init__(self, link: socket.socket, cut: Cut = split) -> None:
        link.settimeout(TIMEOUT)
        self.link = link
        self.cut = cut
        self.frames: list[tuple[int, bytes]] = []  # that the plugin has written
        self._streams = itertools.count(1, 2)
        self._held = {PLUGIN: b"", RUNTIME: b""}
        self.registered: Any = None

    def close(self) -> None:
        self.link.close()

    def frame(self) -> tuple[int, bytes]:
        """Return the next frame of the plugin; raises EOFError, FrameError."""
        connection, length = struct.unpack(">II", self._exact(8))
        data = self._exact(length)
        self.frames.append((connection, data))
        if not self._held[connection] and length > READER:
            raise FrameError(length)
        return connection, data

    def message(self, wanted: int) -> tuple[int, int, bytes]:
        """Return (stream, type, data) of the next message of a connection."""
        while True:
            held = self._held[wanted]
            if len(held) >= 10:
                size, stream, kind, _ = struct.unpack(">IIBB", held[:10])
                if len(held) >= 10 + size:
                    self._held[wanted] = held[10 + size :]
                    return stream, kind, held[10 : 10 + size]
            connection, data = self.frame()
            self._held[connection] += data

    def send(self, connection: int, stream: int, kind: int, data: bytes) -> None:
        message = struct.pack(">IIBB", len(data), stream, kind, 0) + data
        for part in self.cut(message):
            self.link.sendall(struct.pack(">II", connection, len(part)) + part)

    def accept_registration(self, *, answer: bool = True) -> Any:
        """Return the plugin's RegisterPluginRequest, and answer it."""
        stream, kind, data = self.message(RUNTIME)
        request = nri_api.parsed("Request", data)
        assert (kind, stream % 2) == (REQUEST, 1)
        assert (request.service, request.method) == (RUNTIME_SERVICE, "RegisterPlugin")
        self.registered = nri_api.parsed("RegisterPluginRequest", request.payload)
        if answer:
            self.send(RUNTIME, stream, RESPONSE, b"")
        return self.registered

    def begin(
        self, method: str, payload: bytes, *, service: str = PLUGIN_SERVICE, **more: Any
    ) -> int:
        """Send a call, and return its stream."""
        stream = next(self._streams)
        request = nri_api.new("Request", service=service, method=method, payload=payload, **more)
        self.send(PLUGIN, stream, REQUEST, request.SerializeToString())
        return stream

    def answer(self, stream: int) -> bytes:
        """Return the payload of the answer to a call; raises StatusError."""
        found, kind, data = self.message(PLUGIN)
        assert (found, kind) == (stream, RESPONSE)
        response = nri_api.parsed("Response", data)
        if response.status.code:
            raise StatusError(response.status.code, response.status.message)
        return bytes(response.payload)

    def call(self, method: str, payload: bytes = b"", **more: Any) -> bytes:
        """Return the payload of the plugin's answer; raises StatusError."""
        return self.answer(self.begin(method, payload, **more))

    def configure(self, name: str = "containerd", version: str = "v2.1.4", **more: Any) -> int:
        """Configure the plugin; returns the mask of its events."""
        request = nri_api.new(
            "ConfigureRequest", runtime_name=name, runtime_version=version, **more
        )
        payload = self.call("Configure", request.SerializeToString())
        return int(nri_api.parsed("ConfigureResponse", payload).events)

    def synchronize(self, pods: Any = (), containers: Any = (), *, more: bool = False) -> Any:
        """Send a part of the node's pods and containers; returns the answer."""
        request = nri_api.new("SynchronizeRequest", pods=pods, containers=containers, more=more)
        payload = self.call("Synchronize", request.SerializeToString())
        return nri_api.parsed("SynchronizeResponse", payload)

    def create(self, pod: Any, container: Any, **more: Any) -> Any:
        """Create a container; returns the CreateContainerResponse. Raises StatusError."""
        request = nri_api.new("CreateContainerRequest", pod=pod, container=container)
        payload = self.call("CreateContainer", request.SerializeToString(), **more)
        return nri_api.parsed("CreateContainerResponse", payload)

    def start(self, name: str = "containerd", version: str = "v2.1.4", **more: Any) -> int:
        """Register, configure and synchronize, with no container on the node; returns the mask."""
        self.accept_registration()
        mask = self.configure(name, version, **more)
        self.synchronize()
        return mask

    def _exact(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.link.recv(size - len(data))
            if not part:
                raise EOFError("the plugin has closed the connection")
            data += part
        return bytes(data)


class FakeRuntime:
    """A listening NRI socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._plugins: list[FakePlugin] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._listener.settimeout(TIMEOUT)

    def accept(self, cut: Cut = split) -> FakePlugin:
        """Wait for a plugin to connect."""
        link, _ = self._listener.accept()
        self._plugins.append(FakePlugin(link, cut))
        return self._plugins[-1]

    def close(self) -> None:
        """End, with all connections."""
        for plugin in self._plugins:
            plugin.close()
        self._listener.close()
        self.path.unlink(missing_ok=True)


def pod(name: str = "train-0", **more: Any) -> Any:
    """Return a pod."""
    return nri_api.new("PodSandbox", id=f"sandbox-{name}", name=name, namespace="default", **more)


def container(
    env: list[str] | None = None, *, identity: str = "c0", name: str = "main", **more: Any
) -> Any:
    """Return a container as containerd describes it."""
    base = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME=node"]
    return nri_api.new(
        "Container",
        id=identity,
        pod_sandbox_id="sandbox-train-0",
        name=name,
        env=[*base, *(env or [])],
        mounts=[
            {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid"]},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
        ],
        linux={
            "namespaces": [{"type": "pid"}, {"type": "mount"}],
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
        },
        **more,
    )
