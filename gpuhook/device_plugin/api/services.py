# SPDX-License-Identifier: Apache-2.0
"""The kubelet's gRPC services: method paths and message classes.

Servers get the bytes of a request and parse them, so that invalid bytes are answered with a message
of gpuhook. Sources: deviceplugin.proto, podresources.proto.
"""

from __future__ import annotations

from typing import Generic, TypeVar
from urllib.parse import quote

from google.protobuf.message import Message
from grpc import aio

from gpuhook.device_plugin.api import deviceplugin_pb2 as plugin
from gpuhook.device_plugin.api import podresources_pb2 as pods

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

API_VERSION = "v1beta1"
DEVICE_PLUGIN = "v1beta1.DevicePlugin"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
# struct sockaddr_un has 108 bytes for a path and its final zero: unix(7).
SOCKET_PATH_LIMIT = 107

# Each call connects to the current socket: connections are neither kept nor shared, and a proxy in
# the environment is not used.
CHANNEL_OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
)

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


class Method(Generic[Request, Response]):
    """One method of a service: its gRPC `path`, and the classes of its messages."""

    __slots__ = ("path", "request", "response")

    def __init__(self, path: str, request: type[Request], response: type[Response]) -> None:
        self.path = path
        self.request = request
        self.response = response

    @property
    def name(self) -> str:
        """The last word of the path: "Allocate"."""
        return self.path.rpartition("/")[2]

    def unary(self, channel: aio.Channel) -> aio.UnaryUnaryMultiCallable[Request, Response]:
        """Return the call of the method on `channel`."""
        return channel.unary_unary(
            self.path,
            request_serializer=self.request.SerializeToString,
            response_deserializer=self.response.FromString,
        )


REGISTER = Method("/v1beta1.Registration/Register", plugin.RegisterRequest, plugin.Empty)
OPTIONS = Method(
    f"/{DEVICE_PLUGIN}/GetDevicePluginOptions", plugin.Empty, plugin.DevicePluginOptions
)
LIST_AND_WATCH = Method(f"/{DEVICE_PLUGIN}/ListAndWatch", plugin.Empty, plugin.ListAndWatchResponse)
PREFERRED = Method(
    f"/{DEVICE_PLUGIN}/GetPreferredAllocation",
    plugin.PreferredAllocationRequest,
    plugin.PreferredAllocationResponse,
)
ALLOCATE = Method(f"/{DEVICE_PLUGIN}/Allocate", plugin.AllocateRequest, plugin.AllocateResponse)
PRE_START = Method(
    f"/{DEVICE_PLUGIN}/PreStartContainer",
    plugin.PreStartContainerRequest,
    plugin.PreStartContainerResponse,
)
LIST_PODS = Method(
    "/v1.PodResourcesLister/List", pods.ListPodResourcesRequest, pods.ListPodResourcesResponse
)

Context = aio.ServicerContext[bytes, bytes]


def target(path: str) -> str:
    """Return the gRPC target of the unix socket at `path`: a URI, which allows any path."""
    return "unix:" + quote(path)
