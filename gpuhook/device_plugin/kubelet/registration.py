# SPDX-License-Identifier: Apache-2.0
"""Registers resources with the kubelet, and detects a restarted kubelet.

Source: deviceplugin.proto; the kubelet dials the endpoint before it answers, for at most 10 s.
"""

from __future__ import annotations

import os

from grpc import StatusCode, aio

from gpuhook.device_plugin.api import deviceplugin_pb2 as api
from gpuhook.device_plugin.api import services
from gpuhook.errors import fault

_TIMEOUT = 12.0  # seconds


async def register(
    kubelet_socket: str, resource: str, endpoint: str, options: api.DevicePluginOptions
) -> None:
    """Register `resource`, served on the socket named `endpoint`. Raises GH1823.

    The endpoint must be listening: the kubelet calls it at once.
    """
    request = api.RegisterRequest(
        version=services.API_VERSION,
        endpoint=endpoint,
        resource_name=resource,
        options=options,
    )
    target = services.target(kubelet_socket)
    async with aio.insecure_channel(target, options=services.CHANNEL_OPTIONS) as channel:
        try:
            await services.REGISTER.unary(channel)(request, timeout=_TIMEOUT)
        except aio.AioRpcError as error:
            reason = f"{error.code().name} {error.details()}"
            if error.code() == StatusCode.UNAVAILABLE:  # gRPC's own message names no remedy
                reason = "no process answers on the socket; is the kubelet running?"
            raise fault(
                "GH1823", socket=kubelet_socket, resource=resource, reason=reason
            ) from error


class KubeletSocket:
    """Identifies the running kubelet: `current` differs for each one, None without one.

    A file system may reuse an inode number at once, so `current` also has the number of times that
    the socket was reported as made. A changed time of the socket changes neither.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.current: tuple[int, int, int] | None = None
        self._made = 0
        self.look(made=False)

    def look(self, *, made: bool) -> bool:
        """Update `current`, and return whether it has changed.

        `made`: the socket was, or may have been, made again.
        """
        self._made += made
        before, self.current = self.current, self._identity()
        return self.current != before

    def _identity(self) -> tuple[int, int, int] | None:
        if not self.path:
            return None
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return self._made, status.st_dev, status.st_ino
