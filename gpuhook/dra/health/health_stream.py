# SPDX-License-Identifier: Apache-2.0
"""The kubelet's stream of the health of devices, which is shown in the status of pods.

A device that is missing in a list, or not heard of in time, is unknown to the kubelet. So each list
is complete, and is sent at intervals. Sources: drahealth.proto; upstream: pkg/kubelet/cm/dra.
"""

from __future__ import annotations

import asyncio
import time

import grpc

from gpuhook.device_plugin.health import device_trouble
from gpuhook.dra.api import drahealth_pb2 as api
from gpuhook.errors import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuhook.device_plugin.api.services import Context
    from gpuhook.device_plugin.health.device_trouble import DeviceTrouble
    from gpuhook.dra.pool.pool_device import Pool

# Kubernetes 1.36 knows v1alpha1 only, and 1.37 both.
VERSIONS = ("v1", "v1alpha1")
METHOD = "NodeWatchResources"
_INTERVAL = 10.0  # seconds
_TIMEOUT = 30  # seconds without a list after which the health is unknown
_LONGEST_MESSAGE = 1024  # bytes


class HealthStream:
    """Serves the health of one driver's pool; all methods are called in the event loop."""

    names = tuple(f"{version}.DRAResourceHealth" for version in VERSIONS)  # of the services

    def __init__(self, interval: float = _INTERVAL) -> None:
        self._interval = interval
        self._pool: Pool | None = None
        self._troubles: Mapping[str, Sequence[DeviceTrouble]] = {}
        self._changed = asyncio.Event()
        self._is_ending = False

    def publish(self, pool: Pool, troubles: Mapping[str, Sequence[DeviceTrouble]]) -> None:
        """Send the list from now on; `troubles` are by the UUIDs of the devices."""
        is_same = (pool, troubles) == (self._pool, self._troubles)
        self._pool, self._troubles = pool, troubles
        if not is_same:
            self._wake()

    def end(self) -> None:
        """End the streams: the kubelet then knows the health of no device."""
        self._is_ending = True
        self._wake()

    def rpc_handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Return the handler of each version."""
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]]
        methods = {METHOD: grpc.unary_stream_rpc_method_handler(self._watch)}
        return tuple(grpc.method_handlers_generic_handler(name, methods) for name in self.names)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _watch(self, _request: bytes, context: Context) -> None:
        while not self._is_ending:
            changed = self._changed
            if self._pool is not None:  # before the first one, nothing is known
                await context.write(self._list(self._pool).SerializeToString())
            try:
                await asyncio.wait_for(changed.wait(), self._interval)
            except asyncio.TimeoutError:
                continue

    def _list(self, pool: Pool) -> api.NodeWatchResourcesResponse:
        now = int(time.time())
        return api.NodeWatchResourcesResponse(
            devices=[
                _health(pool.name, one.name, self._troubles.get(one.device.uuid, ()), now)
                for one in pool.devices
            ]
        )


def _health(
    pool: str, device: str, troubles: Sequence[DeviceTrouble], now: int
) -> api.DeviceHealth:
    return api.DeviceHealth(
        device=api.DeviceIdentifier(pool_name=pool, device_name=device),
        health=_status(troubles),
        last_updated_time=now,
        health_check_timeout_seconds=_TIMEOUT,
        message=message(troubles),
    )


def _status(troubles: Sequence[DeviceTrouble]) -> api.HealthStatus:
    """Return the status: a driver that does not answer reports nothing about its devices."""
    if any(one.kind != device_trouble.SILENT for one in troubles):
        return api.UNHEALTHY
    return api.UNKNOWN if troubles else api.HEALTHY


def message(troubles: Sequence[DeviceTrouble]) -> str:
    """Return the reasons and remedies as one line that the API server accepts."""
    texts = dict.fromkeys(_sentence(one) for one in troubles)
    data = printable("; ".join(texts), _LONGEST_MESSAGE).encode()
    if len(data) <= _LONGEST_MESSAGE:
        return data.decode()
    return data[: _LONGEST_MESSAGE - 3].decode(errors="ignore") + "..."


def _sentence(one: DeviceTrouble) -> str:
    is_new = one.remedy and one.remedy not in one.reason
    return f"{one.reason} (remedy: {one.remedy})" if is_new else one.reason
