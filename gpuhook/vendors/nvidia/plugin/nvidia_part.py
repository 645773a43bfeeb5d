# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's part of a snapshot of the device plugin, by NVML and /proc.

Reading it blocks for as long as NVML takes. /proc shows later, without NVML, whether a new part is
due; a part during which the node changed, and which may show half of the change, has the token of
before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

from gpuhook.errors import DriverError
from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.nvidia.devices.driver_nodes import CONTROL_NODES
from gpuhook.vendors.nvidia.devices.node_signature import has_hardware, signature
from gpuhook.vendors.nvidia.hot import host_fingerprint
from gpuhook.vendors.nvidia.hot.vocabulary import VENDOR
from gpuhook.vendors.nvidia.inventory.inventory import Driver, Node
from gpuhook.vendors.nvidia.nvml import nvml_inventory, topology
from gpuhook.vendors.nvidia.nvml.topology import Topology
from gpuhook.vendors.nvidia.warm import nvml_library
from gpuhook.vendors.vendor_part import VendorPart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.vendors.plugin_place import Places, PluginPlace


@dataclass(frozen=True, slots=True)
class NvidiaPart(VendorPart):
    """`seen` is the inventory with paths as this process opens them."""

    seen: Node = field(default_factory=lambda: Node(Driver()))

    @property
    def node(self) -> Node:
        """The inventory."""
        return cast("Node", self.inventory)

    @property
    def library_and_module(self) -> tuple[str, str | None]:
        """The arguments of nvml_inventory.opened(): NVML's path, the kernel module's version."""
        return str(self.seen.driver.nvml), self.seen.driver.module_version


def part(
    node: Node, seen: Node | None = None, links: Topology | None = None, token: str = ""
) -> NvidiaPart:
    """Return the part of an inventory; `seen` is the same for this process."""
    seen = node if seen is None else seen
    known = {device.path for device in node.device_nodes}
    losses = {gpu.loss for gpu in node.gpus}  # the health service reports these
    return NvidiaPart(
        domain=VENDOR,
        inventory=node,
        token=token,
        is_whole=all(gpu.lost is None for gpu in node.gpus),  # /proc does not show its return
        links=Topology() if links is None else links,
        control_nodes=tuple(path for path in CONTROL_NODES if path in known),
        device_nodes=node.device_nodes,
        warnings=tuple(warning for warning in node.warnings if warning not in losses),
        library=seen.driver.nvml or "",
        files_trouble=node.files_trouble,
        seen=seen,
    )


def own_part(parts: Iterable[VendorPart]) -> NvidiaPart:
    """Return NVIDIA's part of a node, an empty one for a node without."""
    return next((one for one in parts if isinstance(one, NvidiaPart)), part(Node(Driver())))


def read(place: PluginPlace) -> NvidiaPart:
    """Return the part of a node; a missing or broken driver is its `error`.

    Raises GpuhookError for wrong options, and OSError.
    """
    before = token(place.host_root)
    try:
        seen, links = _query_driver(place)
    except DriverError as error:
        return replace(
            part(Node(Driver()), token=before),
            is_whole=False,
            error=error,
            has_hardware=has_hardware(place.host_root),
        )
    after = token(place.host_root, seen)
    # Compared last, so that `after` belongs to the node that was queried.
    has_changed_meanwhile = token(place.host_root) != before
    # `before` lacks libcuda and never equals a later token: a new part follows.
    own = before if has_changed_meanwhile else after
    return part(at_host(seen, place.driver), seen, links, own)


def token(host_root: str, seen: Node | None = None) -> str:
    """Return the current token of the node; `seen` has the driver's files."""
    files = () if seen is None else seen.files
    libcuda = next((file.host_path for file in files if file.soname == "libcuda.so.1"), "")
    return "\n".join(signature(host_root, libcuda))


def with_lost(now: NvidiaPart, last: NvidiaPart) -> NvidiaPart:
    """Return `now` with what `last` knows of the GPUs that the driver no longer answers for.

    The driver reports no size for a lost GPU. Without one, its memory units would disappear from
    the kubelet's list instead of being listed as unhealthy. If it does not answer at all, the GPUs
    are those of `last`.
    """
    if now.error is not None:
        return replace(last, is_whole=False, error=now.error)
    known: dict[str | None, int | None]
    known = {gpu.uuid: gpu.memory_bytes for gpu in last.node.gpus if gpu.uuid}
    if all(gpu.memory_bytes is not None or not known.get(gpu.uuid) for gpu in now.node.gpus):
        return now
    gpus = tuple(
        replace(gpu, memory_bytes=known.get(gpu.uuid)) if gpu.memory_bytes is None else gpu
        for gpu in now.node.gpus
    )
    return replace(now, inventory=replace(now.node, gpus=gpus))


def at_host(node: Node, where: Places) -> Node:
    """Return `node` with paths on the host in place of those for this process."""
    if (where.driver, where.dev) == (where.host_driver, where.host_dev):
        return node
    return replace(
        node,
        driver_root=where.host_driver,
        dev_root=where.host_dev,
        device_nodes=tuple(
            replace(device, host_path=where.on_host(device.host_path))
            for device in node.device_nodes
        ),
        files=tuple(replace(file, host_path=where.on_host(file.host_path)) for file in node.files),
    )


def _query_driver(place: PluginPlace) -> tuple[Node, Topology]:
    where, search = place.driver, place.library_search_paths
    library = nvml_library.find(where.driver, library=place.library, search_paths=search)
    # Starting NVML may wake every GPU, so it is started once for all queries.
    with nvml_inventory.opened(library, host_fingerprint.module_version(place.host_root) or None):
        seen = discover.node(
            discover.Roots(where.driver, where.dev, place.host_root, library, search),
            require_nodes=False,
            require_files=False,
            create_nodes=True,
        )
        return seen, topology.links(seen.gpus)
