# SPDX-License-Identifier: Apache-2.0
"""Which container holds which unit, as the kubelet's pod resources API tells it.

The API is read by whoever may open the kubelet's socket. Where it cannot be asked nobody is known
to hold anything, and the reason is kept: what needs the answer does without it.
Source: the kubelet's pod resources API v1, List.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuhook.device_plugin.api.podresources_pb2 import ListPodResourcesResponse

_MAX_ANSWER = 16 << 20
_MAX_REASON = 200


@dataclass(frozen=True, slots=True)
class Holder:
    """The container of a pod that holds a unit."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class Holdings:
    """The holder of each unit that is held; `reason` says why nobody is known, "" if all are.

    `by_resource` has the same by resource: units of two resources may have one id.
    """

    holders: dict[str, Holder] = field(default_factory=dict)
    reason: str = ""
    by_resource: dict[str, dict[str, Holder]] = field(default_factory=dict)


async def ask(
    resources: Collection[str] | None = None, *, socket: str, timeout: float = 2.0
) -> Holdings:
    """Return who holds the units of `resources` (None: of all), within `timeout` seconds.

    Never raises but when cancelled: no socket, no permission, no answer are reasons.
    """
    reason = _unusable(socket)
    if reason:
        return Holdings(reason=reason)
    from grpc import aio

    from gpuhook.device_plugin.api import services
    from gpuhook.device_plugin.api.podresources_pb2 import ListPodResourcesRequest

    options = [*services.CHANNEL_OPTIONS, ("grpc.max_receive_message_length", _MAX_ANSWER)]
    channel = aio.insecure_channel(services.target(os.path.abspath(socket)), options=options)
    try:
        call = services.LIST_PODS.unary(channel)
        answer: ListPodResourcesResponse | None = await call(
            ListPodResourcesRequest(), timeout=timeout
        )
    except aio.AioRpcError as error:
        told = f"{error.code().name}: {error.details() or 'no details'}"
        return Holdings(reason=f"{socket}: {told}"[:_MAX_REASON])
    finally:
        await channel.close()
    if answer is None:  # what gRPC makes of bytes that are no message
        return Holdings(reason=f"{socket}: the answer is no message of the pod resources API v1")
    by_resource = _held(answer, resources)
    held: dict[str, Holder] = {}
    for units in by_resource.values():
        held.update(units)
    return Holdings(held, by_resource=by_resource)


def _unusable(socket: str) -> str:
    """Return why the socket cannot be asked, "" if it may be."""
    try:
        if not stat.S_ISSOCK(os.stat(socket).st_mode):
            return f"{socket}: not a socket"
    except OSError as error:
        return f"{socket}: {error.strerror}"
    return "" if os.access(socket, os.W_OK) else f"{socket}: Permission denied"


def _held(
    answer: ListPodResourcesResponse, resources: Collection[str] | None
) -> dict[str, dict[str, Holder]]:
    held: dict[str, dict[str, Holder]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            holder = Holder(pod.namespace, pod.name, container.name)
            for devices in container.devices:
                if resources is None or devices.resource_name in resources:
                    units = held.setdefault(devices.resource_name, {})
                    units.update(dict.fromkeys(devices.device_ids, holder))
    return held
