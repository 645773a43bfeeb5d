# SPDX-License-Identifier: Apache-2.0
"""Answers the kubelet's calls from the state of the node at the last turn."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.device_plugin.allocate.allocate import allocate, units_of
from gpuhook.device_plugin.allocate.allocation_context import Context
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS
from gpuhook.device_plugin.offer.offered_devices import unit_id
from gpuhook.device_plugin.offer.preferred_allocation import preferred
from gpuhook.errors import fault
from gpuhook.request.memory_request import MIB
from gpuhook.request.replicas import device_of
from gpuhook.vendors.plugin.vendor_part import PairScores

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpuhook.device_plugin.allocate.container_allocation import Allocation
    from gpuhook.device_plugin.kubelet.claimed_gpus import ClaimedGpus
    from gpuhook.device_plugin.offer.offered_devices import Resource
    from gpuhook.vendors.plugin.vendor_part import LinkScores


@dataclass(frozen=True, slots=True)
class KnownNode:
    """The state that answers are computed from."""

    configuration: Configuration = field(default_factory=Configuration)
    context: Context = field(default_factory=Context)
    links: Mapping[str, LinkScores] = field(default_factory=dict)  # by domain


class KubeletAnswers:
    """Answers from `known`, which each turn of the plugin replaces as a whole.

    A GpuhookError becomes the gRPC status, with its message and hint. allocate() and preferred()
    are called in the event loop and must answer within milliseconds. pre_start() runs in its own
    thread, since it may query a driver that hangs.

    `free_memory` returns the free bytes of the device with a UUID, None if unknown. `claimed` are
    the GPUs that claims have.
    """

    def __init__(
        self,
        known: KnownNode,
        free_memory: Callable[[str], int | None],
        claimed: ClaimedGpus | None = None,
    ) -> None:
        self.known = known
        self._free_memory = free_memory
        self._claimed = claimed

    def allocate(self, resource: Resource, requests: list[list[str]]) -> list[Allocation]:
        """Return the allocation of each container.

        Raises GH2642, and what allocate.allocate() raises.
        """
        if self._claimed is not None:
            for ids in requests:
                self._claimed.check(resource, ids)
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
            topology=known.links.get(resource.domain, PairScores()),
            unhealthy=known.context.unhealthy,
        )

    def pre_start(self, resource: Resource, ids: list[str]) -> None:
        """Return if the container may start, else raise what check_start() raises."""
        least = self.known.configuration.own.min_free_memory
        check_start(resource, ids, self.known.context.unhealthy, least, self._free_memory)


def _policy(configuration: Configuration, resource: Resource) -> str:
    if resource.sharing == MEMORY_UNITS:
        return configuration.sharing.policy
    return configuration.flags.plugin.shared_devices_allocation_policy


def check_start(
    resource: Resource,
    ids: Sequence[str],
    unhealthy: Mapping[str, str],
    min_free_memory: int,
    free_memory: Callable[[str], int | None],
) -> None:
    """Return if a container can start on the units `ids`, else raise GH1851 or GH1858.

    The kubelet calls Allocate once in the life of a container, and this check before each start. An
    id may therefore be of a configuration with other replicas: only its device is checked.

    `unhealthy` has reasons by device UUID. `free_memory` returns the free bytes of the
    device with a UUID, None if they are unknown, which refuses nothing. It may block. An id of a
    missing device raises GH1850.
    """
    uuids = _devices(resource, ids)
    for name, uuid in uuids.items():
        reason = unhealthy.get(uuid)
        if reason:
            raise fault("GH1851", id=name, resource=resource.name, reason=reason)
    if min_free_memory <= 0:
        return
    for uuid in dict.fromkeys(uuids.values()):
        free = free_memory(uuid)
        if free is not None and free < min_free_memory:
            needed = min_free_memory // MIB
            raise fault("GH1858", uuid=uuid, free=free // MIB, needed=needed)


def _devices(resource: Resource, ids: Sequence[str]) -> dict[str, str]:
    """Return the device UUID of each id; raises GH1850 for an unknown device."""
    known = {device.uuid for device in resource.devices}
    uuids = {name: device_of(unit_id(name)) or name for name in ids}
    units_of(resource, [name for name, uuid in uuids.items() if uuid not in known])
    return uuids
