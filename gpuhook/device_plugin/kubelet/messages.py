# SPDX-License-Identifier: Apache-2.0
"""Builds the kubelet's protobuf messages from resources and allocations."""

from __future__ import annotations

from gpuhook.device_plugin.api import deviceplugin_pb2 as api
from gpuhook.device_plugin.api.services import HEALTHY, UNHEALTHY
from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpuhook.device_plugin.allocate.container_allocation import Allocation
    from gpuhook.device_plugin.offer.offered_devices import Resource, Unit


def listing(resource: Resource, unhealthy: Collection[str]) -> api.ListAndWatchResponse:
    """Return the list of a resource's units, in their order.

    `unhealthy` has UUIDs of devices. A unit has a topology only if its NUMA node is known: the
    kubelet takes an unset node for node 0. Memory units have none: the kubelet prefers units of one
    NUMA node, and would split a request over several GPUs.
    """
    has_node = resource.sharing != MEMORY_UNITS
    return api.ListAndWatchResponse(
        devices=[_device(unit, unhealthy, has_node=has_node) for unit in resource.units]
    )


def _device(unit: Unit, unhealthy: Collection[str], *, has_node: bool) -> api.Device:
    health = UNHEALTHY if unit.device.uuid in unhealthy else HEALTHY
    node = unit.device.numa_node if has_node else None
    if node is None or node < 0:
        return api.Device(ID=unit.id, health=health)
    topology = api.TopologyInfo(nodes=[api.NUMANode(ID=node)])
    return api.Device(ID=unit.id, health=health, topology=topology)


def allocate_response(allocations: Iterable[Allocation]) -> api.AllocateResponse:
    """Return the answer of Allocate: one part for each container."""
    return api.AllocateResponse(container_responses=[_container(one) for one in allocations])


def _container(allocation: Allocation) -> api.ContainerAllocateResponse:
    return api.ContainerAllocateResponse(
        envs=allocation.envs,
        mounts=[
            api.Mount(
                container_path=mount.container_path,
                host_path=mount.host_path,
                read_only=mount.read_only,
            )
            for mount in allocation.mounts
        ],
        devices=[
            api.DeviceSpec(
                container_path=node.container_path,
                host_path=node.host_path,
                permissions=node.permissions,
            )
            for node in allocation.devices
        ],
        annotations=allocation.annotations,
        cdi_devices=[api.CDIDevice(name=name) for name in allocation.cdi_devices],
    )
