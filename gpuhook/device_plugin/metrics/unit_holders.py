# SPDX-License-Identifier: Apache-2.0
"""Queries the kubelet's pod resources API for the containers that hold units and claims' devices.

The query needs permission to open the kubelet's socket. If it fails, the result is empty and has
the reason. Source: the kubelet's pod resources API v1, List.
"""

from __future__ import annotations

import asyncio
import os
import stat
from dataclasses import dataclass, field
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.device_plugin.api.podresources_pb2 import ListPodResourcesResponse

_MAX_ANSWER = 16 << 20
_MAX_REASON = 200


class Holder(NamedTuple):
    """The container of a pod that holds a unit."""

    namespace: str
    pod: str
    container: str


class ClaimUse(NamedTuple):
    """A device of a claim that a container uses: claim, driver, pool, device, and the share."""

    namespace: str
    claim: str
    driver: str
    pool: str
    device: str
    share_id: str


@dataclass(frozen=True, slots=True)
class Holdings:
    """The holder of each held unit; `reason` is why the query failed, "" if it succeeded.

    `by_resource` has the same by resource, since units of two resources may have the same id.
    `claims` are the devices of Dynamic Resource Allocation, each with a container that uses it.
    """

    holders: dict[str, Holder] = field(default_factory=dict)
    reason: str = ""
    by_resource: dict[str, dict[str, Holder]] = field(default_factory=dict)
    claims: tuple[tuple[Holder, ClaimUse], ...] = ()


def holdings(kubelet: str) -> Holdings:
    """Query the kubelet with this root directory, outside of an event loop."""
    return asyncio.run(ask(os.path.join(kubelet, "pod-resources/kubelet.sock")))


async def ask(socket: str, timeout: float = 2.0) -> Holdings:
    """Return the holders of all units, within `timeout` seconds.

    Errors do not raise: a missing socket, permission or answer is the `reason`.
    """
    reason = _socket_error(socket)
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
        message = f"{error.code().name}: {error.details() or 'no details'}"
        return Holdings(reason=f"{socket}: {message}"[:_MAX_REASON])
    finally:
        await channel.close()
    if answer is None:  # gRPC returns None for bytes that it cannot parse
        return Holdings(reason=f"{socket}: the answer is not a message of the pod resources API v1")
    by_resource = _holders_by_resource(answer)
    holders: dict[str, Holder] = {}
    for units in by_resource.values():
        holders.update(units)
    return Holdings(holders, by_resource=by_resource, claims=tuple(_claimed_devices(answer)))


def _socket_error(socket: str) -> str:
    """Return why the socket cannot be used, "" if it can."""
    try:
        if not stat.S_ISSOCK(os.stat(socket).st_mode):
            return f"{socket}: not a socket"
    except OSError as error:
        return f"{socket}: {error.strerror}"
    return "" if os.access(socket, os.W_OK) else f"{socket}: Permission denied"


def _holders_by_resource(answer: ListPodResourcesResponse) -> dict[str, dict[str, Holder]]:
    held: dict[str, dict[str, Holder]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            holder = Holder(pod.namespace, pod.name, container.name)
            for devices in container.devices:
                units = held.setdefault(devices.resource_name, {})
                units.update(dict.fromkeys(devices.device_ids, holder))
    return held


def _claimed_devices(answer: ListPodResourcesResponse) -> Iterator[tuple[Holder, ClaimUse]]:
    for pod in answer.pod_resources:
        for container in pod.containers:
            holder = Holder(pod.namespace, pod.name, container.name)
            for claim in container.dynamic_resources:
                for one in claim.claim_resources:
                    about = (one.driver_name, one.pool_name, one.device_name, one.share_id)
                    yield holder, ClaimUse(claim.claim_namespace, claim.claim_name, *about)
