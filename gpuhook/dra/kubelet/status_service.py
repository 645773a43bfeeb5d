# SPDX-License-Identifier: Apache-2.0
"""The state of a running driver, for `gpuhook dra status`: a call at the driver's socket."""

from __future__ import annotations

import json

import grpc

from gpuhook.device_plugin.api import services
from gpuhook.errors import GpuhookError
from gpuhook.host import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuhook.device_plugin.api.services import Context

_SERVICE, _METHOD = "gpuhook.DraStatus", "Get"
_TIMEOUT = 5.0  # seconds


class StatusService:
    """Answers with `state`, an object for JSON."""

    def __init__(self, state: Callable[[], dict[str, Any]]) -> None:
        self._state = state

    def rpc_handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Return the handler of the service."""
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]]
        methods = {_METHOD: grpc.unary_unary_rpc_method_handler(self._get)}
        return (grpc.method_handlers_generic_handler(_SERVICE, methods),)

    async def _get(self, _request: bytes, _context: Context) -> bytes:
        return json.dumps(self._state()).encode()


def state_at(socket: str) -> tuple[dict[str, Any], str]:
    """Return the state of the driver that listens at a socket, {} and the reason without one."""
    options = list(services.CHANNEL_OPTIONS)
    with grpc.insecure_channel(services.target(socket), options=options) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes]
        call = channel.unary_unary(f"/{_SERVICE}/{_METHOD}")
        try:
            return documents.parse_json_object(call(b"", timeout=_TIMEOUT)), ""
        except grpc.RpcError as error:
            code, details = error.code().name, error.details() or "no details"
            return {}, f"{code}: {details}"
        except (GpuhookError, ValueError) as error:
            return {}, f"it is not a driver of gpuhook: {error}"
