# SPDX-License-Identifier: Apache-2.0
"""The answers to the kubelet's calls, from what was seen of the node at the last turn."""

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
    from gpuhook.device_plugin.offer.prefer_linked import Scores


@dataclass(frozen=True, slots=True)
class KnownNode:
    """What answers are made of. `unhealthy` has reasons by device UUID."""

    topology: Scores
    configuration: Configuration = field(default_factory=Configuration)
    context: Context = field(default_factory=Context)
    unhealthy: Mapping[str, str] = field(default_factory=dict)


class Answering:
    """Answers by what is `known`, which each turn of the plugin replaces as a whole.

    `free_memory` returns the bytes that the device of a UUID has free, None if nobody can tell.
    """

    def __init__(self, known: KnownNode, free_memory: Callable[[str], int | None]) -> None:
        self.known = known
        self._free_memory = free_memory

    def allocate(self, resource: Resource, requests: list[list[str]]) -> list[Allocation]:
        """Return what each container gets; raises what allocate.allocate() does."""
        return [allocate(resource, ids, self.known.context) for ids in requests]

    def preferred(
        self, resource: Resource, available: list[str], must_include: list[str], size: int
    ) -> list[str]:
        """Return the units to give; raises what preferred_allocation.preferred() does."""
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
        """Return if the container may start; raises what pre_start_check.check() does."""
        least = self.known.configuration.own.min_free_memory
        pre_start_check.check(resource, ids, self.known.unhealthy, least, self._free_memory)


def _policy(configuration: Configuration, resource: Resource) -> str:
    if resource.sharing == MEMORY_UNITS:
        return configuration.sharing.policy
    return configuration.flags.plugin.shared_devices_allocation_policy
