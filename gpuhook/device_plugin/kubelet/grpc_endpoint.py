# SPDX-License-Identifier: Apache-2.0
"""A gRPC server on a unix socket, identified by its inode.

When a gRPC server closes, it removes the path that it was bound to, even if another process has
replaced the socket. So the server is bound to a temporary name of this process, and the socket is
renamed when it listens: it appears complete, replaces an older one, and is removed only by this
process and only if the inode is still the same.
"""

from __future__ import annotations

import os
import socket
import stat
from binascii import crc32
from contextlib import suppress
from typing import Protocol

from grpc import GenericRpcHandler, aio

from gpuhook.device_plugin.api import services
from gpuhook.errors import fault
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

_MIN_NAME = 24  # bytes: a digest, and enough of the resource to recognize it
MESSAGE_LIMIT = 16 << 20  # bytes of a request
_OPTIONS = (("grpc.max_receive_message_length", MESSAGE_LIMIT), ("grpc.so_reuseport", 0))


class Served(Protocol):
    """What an endpoint serves: its name for messages, and the handlers of its services."""

    @property
    def name(self) -> str: ...
    def rpc_handlers(self) -> tuple[GenericRpcHandler, ...]: ...


class Endpoint:
    """A server that listens at `path`; created by `listening`."""

    def __init__(self, path: str, server: aio.Server, inode: tuple[int, int]) -> None:
        self.path = path
        self._server = server
        self._inode = inode

    @classmethod
    async def listening(cls, path: str, served: Served, mode: int | None = None) -> Endpoint:
        """Serve at `path`, replacing an existing socket, and return when it listens.

        `mode` are the permission bits of the socket; None: those of the process's umask. Raises
        GH1821, and leaves no file behind then.
        """
        directory, name = os.path.split(path)
        # Not longer than the final name, which fits. Another plugin can have the same pid only in
        # another container, and would have to start at the same moment.
        bound = os.path.join(directory, f".{os.getpid():x}{_digest(name)}"[: len(name)])
        server = aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers(served.rpc_handlers())
        try:
            os.stat(directory)  # gRPC's error has no reason
            server.add_insecure_port(services.target(bound))
            inode = _inode(bound)
            if mode is not None:
                os.chmod(bound, mode)
            await server.start()
            os.rename(bound, path)
        except (OSError, RuntimeError) as error:
            await server.stop(None)
            reason = error.strerror if isinstance(error, OSError) else _bind_error(bound)
            raise fault("GH1821", resource=served.name, path=path, reason=reason) from error
        return cls(path, server, inode)

    def is_ours(self) -> bool:
        """Return whether the socket at the path is that of this server."""
        try:
            return _inode(self.path) == self._inode
        except OSError:
            return False

    def is_taken(self) -> bool:
        """Return whether another process listens at the path."""
        return not self.is_ours() and _answers(self.path)

    def remove(self) -> None:
        """Remove the socket if it is that of this server."""
        if self.is_ours():
            with suppress(
                OSError
            ):  # removed meanwhile, or no permission: the socket is dead either way
                os.unlink(self.path)

    async def close(self, grace: float | None = None) -> None:
        """Remove the socket and stop; calls have `grace` seconds to end."""
        self.remove()
        await self._server.stop(grace)


def socket_name(resource: str, directory: str, taken: Container[str] = ()) -> str:
    """Return the name of a resource's socket in `directory`: nvidia-<resource>.sock, amd-gpu.sock.

    The name has a digest instead of the resource's domain if it is taken by a resource of another
    domain, or too long for a socket's path. Raises GH1822.
    """
    domain, _, word = resource.rpartition("/")
    known = vendors()
    vendor = next((one.name for one in known if one.domain == domain), known[0].name)
    limit = services.SOCKET_PATH_LIMIT - len(os.fsencode(directory)) - 1
    if limit < _MIN_NAME:
        raise fault("GH1822", directory=directory, limit=services.SOCKET_PATH_LIMIT)
    name = f"{vendor}-{word}.sock"
    if name in taken or len(name) > limit:
        tail = f"-{_digest(resource)}.sock"
        name = f"{vendor}-{word}"[: limit - len(tail)] + tail
    return name


def is_dead(path: str) -> bool:
    """Return whether there is a socket at `path` on which no process listens."""
    try:
        _inode(path)
    except OSError:
        return False
    return not _answers(path)


def _bind_error(path: str) -> str:
    """Return why no socket can be bound to a path: gRPC does not report it."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
            tried.bind(path)
        os.unlink(path)
    except OSError as error:
        return error.strerror or str(error)
    return "no socket can be created there"


def _digest(text: str) -> str:
    return f"{crc32(os.fsencode(text)):08x}"  # hashlib would load 4 MB of OpenSSL


def _inode(path: str) -> tuple[int, int]:
    status = os.lstat(path)
    if not stat.S_ISSOCK(status.st_mode):
        raise FileNotFoundError(path)
    return status.st_dev, status.st_ino


def _answers(path: str) -> bool:
    """Return whether a process accepts connections at `path`, without waiting."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as caller:
        try:
            caller.connect(path)
        except BlockingIOError:  # the backlog of a listening socket is full
            return True
        except OSError:
            return False
        return True
