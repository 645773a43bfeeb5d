# SPDX-License-Identifier: Apache-2.0
"""The paths of a driver's sockets in the kubelet's directories.

During a rolling update two pods of the driver run: each has its own sockets, with the UID of its
pod, and the kubelet calls the newest one.
"""

from __future__ import annotations

import os
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


def remove_dead(paths: SocketPaths, driver: str) -> None:
    """Remove the sockets of the driver's former pods, on which no process listens.

    The kubelet would dial them at each of its starts.
    """
    registry = os.path.dirname(paths.registration)
    for directory, word in ((paths.directory, SERVICE), (registry, driver)):
        with suppress(OSError):
            for name in os.listdir(directory):
                path = os.path.join(directory, name)
                is_own = name.startswith((f"{word}-", f"{word}.sock")) and name.endswith(".sock")
                if is_own and grpc_endpoint.is_dead(path):
                    os.unlink(path)
