# SPDX-License-Identifier: Apache-2.0
"""The verdicts of a GPU metrics exporter, such as AMD's, on the health of devices."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.plugin.vendor_part import ExporterWords

_TIMEOUT = 5.0  # seconds, as in AMD's device plugin
_UNHEALTHY = "unhealthy"  # any other text, such as "unknown", proves nothing
_MOST_BYTES = 4 << 20
_REASON = "the metrics exporter reports it as unhealthy"


async def unhealthy_devices(
    words: ExporterWords, host_root: str = "/", timeout: float = _TIMEOUT
) -> dict[str, str]:
    """Return the devices that the exporter reports as unhealthy: reasons by UUID.

    {} without an exporter. Raises OSError if it does not answer.
    """
    path = os.path.join(host_root, words.socket.lstrip("/"))
    if not os.path.exists(path):
        return {}
    from grpc import StatusCode, aio

    from gpuhook.device_plugin.api import exporter_pb2, services

    options = [*services.CHANNEL_OPTIONS, ("grpc.max_receive_message_length", _MOST_BYTES)]
    async with aio.insecure_channel(services.target(path), options=options) as channel:
        for method in words.methods:
            call = services.Method(method, exporter_pb2.ListRequest, exporter_pb2.GPUStateResponse)
            try:
                answer = await call.unary(channel)(exporter_pb2.ListRequest(), timeout=timeout)
            except aio.AioRpcError as error:
                if error.code() == StatusCode.UNIMPLEMENTED:
                    continue
                message = f"{error.code().name}: {error.details() or 'no details'}"
                raise OSError(f"{path}: {message}") from error
            if answer is None:  # gRPC returns None for bytes that it cannot parse
                raise OSError(f"{path}: the answer is not a list of GPUs")
            marked = [gpu.Device for gpu in answer.GPUState if gpu.Health == _UNHEALTHY]
            return dict.fromkeys(filter(None, marked), _REASON)
    raise OSError(f"{path}: it serves none of {', '.join(words.methods)}")
