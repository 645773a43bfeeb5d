# SPDX-License-Identifier: Apache-2.0
"""The kubelet's side of a plugin's socket: a connection, and streams of device lists."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import grpc

from gpuhook.device_plugin.api import deviceplugin_pb2 as api
from gpuhook.device_plugin.api import services
from tests.waiting import Changes

TIMEOUT = 60.0


class Stream:
    """A ListAndWatch stream, read by its own thread. `lists` are all received lists."""

    def __init__(self, channel: grpc.Channel, changes: Changes) -> None:
        self.lists: list[list[api.Device]] = []
        self.ended = False
        self._changes = changes
        self._call = channel.unary_stream(
            services.LIST_AND_WATCH.path,
            request_serializer=api.Empty.SerializeToString,
            response_deserializer=api.ListAndWatchResponse.FromString,
        )(api.Empty())
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for message in self._call:
                with self._changes:
                    self.lists.append(list(message.devices))
        except grpc.RpcError:
            pass
        with self._changes:
            self.ended = True

    def cancel(self) -> None:
        """Cancel the stream."""
        self._call.cancel()
        self._thread.join(TIMEOUT)


class Endpoint:
    """A connection to a plugin's socket, with its stream and the kubelet's calls."""

    def __init__(self, socket: Path, options: api.DevicePluginOptions, changes: Changes) -> None:
        """Connect as the kubelet does before it answers Register. Raises grpc.RpcError."""
        self.socket = socket
        self.options = options
        self._changes = changes
        self.channel = grpc.insecure_channel(
            services.target(str(socket)), options=list(services.CHANNEL_OPTIONS)
        )
        try:
            # Not grpc.channel_ready_future: its thread makes each close wait for 0.2 s.
            self.get_options(timeout=10)
        except grpc.RpcError:
            self.channel.close()
            raise
        self.stream = Stream(self.channel, changes)

    def watch(self) -> Stream:
        """Open another stream."""
        return Stream(self.channel, self._changes)

    @property
    def devices(self) -> dict[str, api.Device]:
        """Return the devices of the last list by id, in its order; {} without a list."""
        lists = self.stream.lists
        return {device.ID: device for device in lists[-1]} if lists else {}

    def get_options(self, timeout: float = TIMEOUT) -> api.DevicePluginOptions:
        """Call GetDevicePluginOptions when the socket can be reached."""
        call = self.channel.unary_unary(
            services.OPTIONS.path,
            request_serializer=api.Empty.SerializeToString,
            response_deserializer=api.DevicePluginOptions.FromString,
        )
        return call(api.Empty(), timeout=timeout, wait_for_ready=True)

    def allocate(self, *containers: Sequence[str]) -> api.AllocateResponse:
        """Call Allocate with the ids for each container."""
        call = self.channel.unary_unary(
            services.ALLOCATE.path,
            request_serializer=api.AllocateRequest.SerializeToString,
            response_deserializer=api.AllocateResponse.FromString,
        )
        requests = [api.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
        return call(api.AllocateRequest(container_requests=requests), timeout=TIMEOUT)

    def preferred(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> list[str]:
        """Call GetPreferredAllocation for one container."""
        call = self.channel.unary_unary(
            services.PREFERRED.path,
            request_serializer=api.PreferredAllocationRequest.SerializeToString,
            response_deserializer=api.PreferredAllocationResponse.FromString,
        )
        request = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
        )
        asked = api.PreferredAllocationRequest(container_requests=[request])
        (answer,) = call(asked, timeout=TIMEOUT).container_responses
        return list(answer.deviceIDs)

    def pre_start(self, ids: Sequence[str]) -> None:
        """Call PreStartContainer."""
        call = self.channel.unary_unary(
            services.PRE_START.path,
            request_serializer=api.PreStartContainerRequest.SerializeToString,
            response_deserializer=api.PreStartContainerResponse.FromString,
        )
        call(api.PreStartContainerRequest(devices_ids=ids), timeout=TIMEOUT)

    def close(self) -> None:
        """End the stream and the connection."""
        self.stream.cancel()
        self.channel.close()
