# SPDX-License-Identifier: Apache-2.0
"""Telling the kubelet of a resource, and knowing one kubelet from the next.

Source: deviceplugin.proto; the kubelet dials the endpoint before it answers, for at most 10 s.
"""

from __future__ import annotations

import os

from grpc import StatusCode, aio

from gpuhook.device_plugin.api import deviceplugin_pb2 as api
from gpuhook.device_plugin.api import services
from gpuhook.errors import fault

_TIMEOUT = 12.0


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
            if error.code() == StatusCode.UNAVAILABLE:  # gRPC's own words help nobody
                reason = "nobody answers there, or who did is gone; is the kubelet running?"
            raise fault(
                "GH1823", socket=kubelet_socket, resource=resource, reason=reason
            ) from error


class KubeletSocket:
    """Which kubelet is there: `current` is None for none, and differs from one to the next.

    An inode's number is often given to the next file at once, so that alone is no proof: being
    told that the socket was made counts as well. Touching it changes neither.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.current: tuple[int, int, int] | None = None
        self._made = 0
        self.look(made=False)

    def look(self, *, made: bool) -> bool:
        """Look again, and return whether it is another than before, or none.

        `made`: the socket was, or may have been, made anew.
        """
        self._made += made
        before, self.current = self.current, self._found()
        return self.current != before

    def _found(self) -> tuple[int, int, int] | None:
        if not self.path:
            return None
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return self._made, found.st_dev, found.st_ino
