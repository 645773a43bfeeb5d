# SPDX-License-Identifier: Apache-2.0
"""The paths of a driver's sockets in the kubelet's directories.

During a rolling update two pods of the driver run: each has its own sockets, with the UID of its
pod, and the kubelet calls the newest one.
"""

from __future__ import annotations

import os
import stat
from binascii import crc32
from contextlib import suppress
from dataclasses import dataclass

from gpuhook.device_plugin.api.services import SOCKET_PATH_LIMIT
from gpuhook.device_plugin.kubelet import grpc_endpoint
from gpuhook.errors import fault

SERVICE, REGISTRATION = "dra", "reg"
_DIGEST = 2 * 8 + 1  # two checksums and a hyphen


@dataclass(frozen=True, slots=True)
class SocketPaths:
    """The driver's own directory, the service's socket in it, and the registration's socket."""

    directory: str
    service: str
    registration: str


def socket_paths(plugins: str, registry: str, driver: str, pod_uid: str = "") -> SocketPaths:
    """Return the paths for a driver, with the UID of its pod if there is one.

    `plugins` and `registry` are the kubelet's directories. A name that makes the path too long for
    a socket has a digest of it instead. Raises GH1822.
    """
    directory = os.path.join(os.path.abspath(plugins), driver)
    registry = os.path.abspath(registry)
    uid = f"-{pod_uid}" if pod_uid else ""
    return SocketPaths(
        directory,
        _path(directory, f"{SERVICE}{uid}", ".sock"),
        _path(registry, f"{driver}{uid}", f"-{REGISTRATION}.sock"),
    )


def _path(directory: str, name: str, suffix: str) -> str:
    limit = SOCKET_PATH_LIMIT - len(os.fsencode(directory)) - 1
    if limit < _DIGEST + len(suffix):
        raise fault("GH1822", directory=directory, limit=SOCKET_PATH_LIMIT)
    if len(os.fsencode(name + suffix)) > limit:
        data = os.fsencode(name)
        digest = f"{crc32(data):08x}-{crc32(data[::-1]):08x}"
        name = name[: max(limit - len(suffix) - len(digest) - 1, 0)]
        name = f"{name}-{digest}" if name else digest
    return os.path.join(directory, name + suffix)


def sockets(directory: str, word: str) -> list[str]:
    """Return the visible sockets of a directory, "<word>.sock" or "<word>-<more>.sock"."""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    own = (one for one in names if one.startswith((f"{word}.", f"{word}-")))
    paths = (os.path.join(directory, one) for one in own if one.endswith(".sock"))
    return [path for path in paths if _is_socket(path)]


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def remove_dead(paths: SocketPaths, driver: str) -> None:
    """Remove the sockets of the driver's former pods, on which no process listens.

    The kubelet would dial them at each of its starts.
    """
    registry = os.path.dirname(paths.registration)
    for path in (*sockets(paths.directory, SERVICE), *sockets(registry, driver)):
        if grpc_endpoint.is_dead(path):
            with suppress(OSError):
                os.unlink(path)
