# SPDX-License-Identifier: Apache-2.0
"""The request of a kubelet's call from its bytes, and an error as the status of the call."""

from __future__ import annotations

import grpc
from google.protobuf.message import DecodeError

from gpuhook.errors import RequestError, fault, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.api.services import Method, Request, Response
    from gpuhook.errors import GpuhookError

_LENGTH = 2000  # a status travels in a header, which peers limit to 8 KiB and more


def parsed(method: Method[Request, Response], data: bytes) -> Request:
    """Return the request of a call; raises GH1820."""
    try:
        return method.request.FromString(data)
    except (DecodeError, ValueError) as error:  # depends on the implementation of protobuf
        raise fault(
            "GH1820", method=method.name, size=len(data), message=method.request.__name__
        ) from error


def code(error: GpuhookError) -> grpc.StatusCode:
    wrong_request = isinstance(error, RequestError)
    return (
        grpc.StatusCode.INVALID_ARGUMENT if wrong_request else grpc.StatusCode.FAILED_PRECONDITION
    )


def sentence(error: GpuhookError) -> str:
    """Return an error as one line; the kubelet shows it in the events or the status of the pod."""
    return printable(f"{error.code}: {error.message} ({error.hint})", _LENGTH)
