# SPDX-License-Identifier: Apache-2.0
"""The kubelet's side of a driver's stream of health."""

from __future__ import annotations

import threading

import grpc

from gpuhook.dra.api import drahealth_pb2 as api
from tests.waiting import Changes

HEALTHY, UNHEALTHY, UNKNOWN = "HEALTHY", "UNHEALTHY", "UNKNOWN"


class HealthWatch:
    """A stream of a driver, read by its own thread. `healths` and `messages` are by device."""

    def __init__(self, channel: grpc.Channel, version: str = "v1alpha1") -> None:
        self.healths: dict[str, str] = {}
        self.messages: dict[str, str] = {}
        self.lists = 0
        self.has_ended = False
        self._changes = Changes()
        self._call = channel.unary_stream(
            f"/{version}.DRAResourceHealth/NodeWatchResources",
            request_serializer=api.NodeWatchResourcesRequest.SerializeToString,
            response_deserializer=api.NodeWatchResourcesResponse.FromString,
        )(api.NodeWatchResourcesRequest())
        threading.Thread(target=self._read, daemon=True).start()

    def wait_for(self, **healths: str) -> None:
        """Wait until these devices have these healths, and all others are healthy."""
        wanted = {name.replace("_", "-"): health for name, health in healths.items()}

        def is_so() -> bool:
            others = {one for name, one in self.healths.items() if name not in wanted}
            return others <= {HEALTHY} and wanted.items() <= self.healths.items()

        self._changes.wait_for(is_so, f"{wanted}, all others healthy")

    def wait_for_lists(self, count: int) -> None:
        self._changes.wait_for(lambda: self.lists >= count, f"{count} lists")

    def wait_for_end(self) -> None:
        self._changes.wait_for(lambda: self.has_ended, "the end of the stream")

    def _read(self) -> None:
        try:
            for response in self._call:
                with self._changes:
                    self.lists += 1
                    self.healths = {
                        one.device.device_name: api.HealthStatus.Name(one.health)
                        for one in response.devices
                    }
                    self.messages = {
                        one.device.device_name: one.message for one in response.devices
                    }
        except grpc.RpcError:
            pass
        with self._changes:
            self.has_ended = True
