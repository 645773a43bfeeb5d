# SPDX-License-Identifier: Apache-2.0
"""Answers the kubelet's calls from the state of the node at the last turn."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.device_plugin.allocate import pre_start_check
from gpuhook.device_plugin.allocate.allocate import allocate
from gpuhook.device_plugin.allocate.allocation_context import Context
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS
from gpuhook.device_plugin.offer.preferred_allocation import preferred

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuhook.device_plugin.allocate.container_allocation import Allocation
    from gpuhook.device_plugin.offer.offered_devices import Resource
    from gpuhook.vendors.nvidia.nvml.topology import Topology


@dataclass(frozen=True, slots=True)
class KnownNode:
    """The state that answers are computed from. `unhealthy` has reasons by device UUID."""

    topology: Topology
    configuration: Configuration = field(default_factory=Configuration)
    context: Context = field(default_factory=Context)
    unhealthy: Mapping[str, str] = field(default_factory=dict)


class KubeletAnswers:
    """Answers from `known`, which each turn of the plugin replaces as a whole.

    A GpuhookError becomes the gRPC status, with its message and hint. allocate() and preferred()
    are called in the event loop and must answer within milliseconds. pre_start() runs in its own
    thread, since it may query a driver that hangs.

    `free_memory` returns the free bytes of the device with a UUID, None if unknown.
    """

    def __init__(self, known: KnownNode, free_memory: Callable[[str], int | None]) -> None:
        self.known = known
        self._free_memory = free_memory

    def allocate(self, resource: Resource, requests: list[list[str]]) -> list[Allocation]:
        """Return the allocation of each container; raises what allocate.allocate() raises."""
        return [allocate(resource, ids, self.known.context) for ids in requests]

    def preferred(
        self, resource: Resource, available: list[str], must_include: list[str], size: int
    ) -> list[str]:
        """Return the preferred units; raises what preferred_allocation.preferred() raises."""
        known = self.known
        return preferred(
            resource,
            available,
            must_include,
            size,
            policy=_policy(known.configuration, resource),
            topology=known.topology,
            unhealthy=known.unhealthy,
        )

    def pre_start(self, resource: Resource, ids: list[str]) -> None:
        """Return if the container may start, else raise as pre_start_check.check()."""
        least = self.known.configuration.own.min_free_memory
        pre_start_check.check(resource, ids, self.known.unhealthy, least, self._free_memory)


def _policy(configuration: Configuration, resource: Resource) -> str:
    if resource.sharing == MEMORY_UNITS:
        return configuration.sharing.policy
    return configuration.flags.plugin.shared_devices_allocation_policy
