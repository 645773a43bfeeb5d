# SPDX-License-Identifier: Apache-2.0
"""A gRPC server on a unix socket that is known to be ours by its inode.

gRPC removes the path it was bound to whenever it closes, whosever socket is there by then. So it
is bound to a name of this process, and the socket is moved to its own name when it listens: it
appears at once and whole, replaces what was there, and is removed only by us, only if it is ours.
"""

from __future__ import annotations

import os
import socket
import stat
from binascii import crc32
from contextlib import suppress

from grpc import aio

from gpuhook.device_plugin.api import services
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from gpuhook.device_plugin.api.services import DevicePlugin

_LEAST_ROOM = 24  # bytes for a name: a digest, and enough of the resource to be recognized
MESSAGE_LIMIT = 16 << 20  # bytes that a request may have
_OPTIONS = (("grpc.max_receive_message_length", MESSAGE_LIMIT), ("grpc.so_reuseport", 0))


class Endpoint:
    """A server that listens at `path`; made by `listening`."""

    def __init__(self, path: str, server: aio.Server, inode: tuple[int, int]) -> None:
        self.path = path
        self._server = server
        self._inode = inode

    @classmethod
    async def listening(cls, path: str, resource: str, served: DevicePlugin) -> Endpoint:
        """Serve `served` at `path`, in place of whatever is there, and return when it listens.

        Raises GH1821, and then nothing is left behind.
        """
        directory, name = os.path.split(path)
        # Not longer than the name itself, which fits. Nobody else in this directory has our pid,
        # but for plugins in containers of their own: they would have to start at the same moment.
        bound = os.path.join(directory, f".{os.getpid():x}{_digest(name)}"[: len(name)])
        server = aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((services.device_plugin(served),))
        try:
            os.stat(directory)  # gRPC writes lines of its own, and no reason
            server.add_insecure_port(services.target(bound))
            inode = _inode(bound)
            await server.start()
            os.rename(bound, path)
        except (OSError, RuntimeError) as error:
            await server.stop(None)
            reason = error.strerror if isinstance(error, OSError) else _why_not(bound)
            raise fault("GH1821", resource=resource, path=path, reason=reason) from error
        return cls(path, server, inode)

    def is_ours(self) -> bool:
        """Return whether the socket at the path is this server's."""
        try:
            return _inode(self.path) == self._inode
        except OSError:
            return False

    def is_taken(self) -> bool:
        """Return whether another process listens at the path."""
        return not self.is_ours() and _answers(self.path)

    def remove(self) -> None:
        """Remove the socket if it is ours."""
        if self.is_ours():
            with suppress(OSError):  # gone meanwhile, or not to be removed: it is dead either way
                os.unlink(self.path)

    async def close(self, grace: float | None = None) -> None:
        """Remove the socket if it is ours, and stop; calls have `grace` seconds to end."""
        self.remove()
        await self._server.stop(grace)


def socket_name(resource: str, directory: str, taken: Container[str] = ()) -> str:
    """Return the name of a resource's socket in `directory`: nvidia-<resource>.sock.

    The resource's domain is not in it, unless that name is taken by a resource of another domain
    or is too long for a socket's path: then a part of it is a digest. Raises GH1822.
    """
    word = resource.rpartition("/")[2]
    room = services.SOCKET_PATH_LIMIT - len(os.fsencode(directory)) - 1
    if room < _LEAST_ROOM:
        raise fault("GH1822", directory=directory, limit=services.SOCKET_PATH_LIMIT)
    name = f"nvidia-{word}.sock"
    if name in taken or len(name) > room:
        tail = f"-{_digest(resource)}.sock"
        name = f"nvidia-{word}"[: room - len(tail)] + tail
    return name


def _why_not(path: str) -> str:
    """Return why no socket can be bound to a path: gRPC does not tell."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
            tried.bind(path)
        os.unlink(path)
    except OSError as error:
        return error.strerror or str(error)
    return "no socket can be made there"


def _digest(text: str) -> str:
    return f"{crc32(os.fsencode(text)):08x}"  # hashlib would bring 4 MB of OpenSSL


def _inode(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    if not stat.S_ISSOCK(found.st_mode):
        raise FileNotFoundError(path)
    return found.st_dev, found.st_ino


def _answers(path: str) -> bool:
    """Return whether somebody accepts connections at `path`; never waits."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as caller:
        try:
            caller.connect(path)
        except BlockingIOError:  # its backlog is full: it is there
            return True
        except OSError:
            return False
        return True
