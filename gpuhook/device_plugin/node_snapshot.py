# SPDX-License-Identifier: Apache-2.0
"""A snapshot of the node: its GPUs, their links, and the paths that an allocation needs.

The driver of each vendor is queried on its own: `node` and what belongs to it are of NVML, whose
library and sessions the services of the plugin share, and `parts` of the other vendors. Taking one
blocks for as long as NVML takes, so the plugin does it in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from gpuhook.device_plugin import driver_calls
from gpuhook.device_plugin.allocate import host_paths
from gpuhook.device_plugin.allocate.host_paths import Places
from gpuhook.errors import DriverError, GpuhookError
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.nvidia.devices.node_signature import has_hardware, signature
from gpuhook.vendors.nvidia.hot import host_fingerprint
from gpuhook.vendors.nvidia.inventory.inventory import Driver, Node
from gpuhook.vendors.nvidia.nvml import nvml_inventory, topology
from gpuhook.vendors.nvidia.nvml.topology import Topology
from gpuhook.vendors.nvidia.warm import nvml_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.vendors.vendor_part import VendorPart


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """The node at one moment. `seen` has paths as this process opens them, `node` the host's.

    `trouble` is the error of NVML's driver that did not answer; the fields of NVML are then empty.
    `signature` shows without NVML whether a new snapshot is due; a snapshot during which the node
    changed, and which may show half of the change, has the signature of before. `failures` are the
    vendors whose part could not be read, with the reason.
    """

    node: Node = field(default_factory=lambda: Node(Driver()))
    seen: Node = field(default_factory=lambda: Node(Driver()))
    places: Places = field(default_factory=Places)
    topology: Topology = field(default_factory=Topology)
    signature: tuple[str, ...] = ()
    trouble: GpuhookError | None = None
    is_dump: bool = False  # from --inventory: there is no driver to query
    parts: tuple[VendorPart, ...] = ()
    failures: tuple[str, ...] = ()

    @property
    def library(self) -> tuple[str, str | None]:
        """The arguments of nvml_inventory.opened(): NVML's path, the kernel module's version."""
        return str(self.seen.driver.nvml), self.seen.driver.module_version

    @property
    def is_whole(self) -> bool:
        """Whether all drivers answered and have lost no GPU."""
        parts_are = all(part.is_whole and not part.trouble for part in self.parts)
        return self.has_all_gpus and parts_are and not self.failures

    @property
    def has_all_gpus(self) -> bool:
        """Whether NVML answered and has lost no GPU; /proc does not show a GPU's return."""
        return self.trouble is None and all(gpu.lost is None for gpu in self.seen.gpus)

    @property
    def inventories(self) -> tuple[object, ...]:
        """The inventories of `parts`."""
        return tuple(part.inventory for part in self.parts)

    def part(self, domain: str) -> VendorPart | None:
        """Return the part of a vendor."""
        return next((part for part in self.parts if part.domain == domain), None)


def take(launch: Launch, configuration: Configuration) -> NodeSnapshot:
    """Return a snapshot; a missing or broken driver is its `trouble`.

    Raises GpuhookError for wrong options, and OSError.
    """
    parts, failures = take_parts(launch.inventory, launch.host_root, launch.node_dev_root)
    own = _take_own(launch, configuration)
    # The node may have GPUs of the other vendors only.
    if own.trouble is not None and parts and not has_hardware(launch.host_root):
        own = replace(own, trouble=None)
    return replace(own, parts=parts, failures=failures)


def take_parts(
    inventory: str | None, host_root: str, dev_root: str | None = None
) -> tuple[tuple[VendorPart, ...], tuple[str, ...]]:
    """Return the parts of the other vendors, and why some could not be read.

    They are of the node in a file or profile, else of the node below `host_root`.
    """
    parts, failures = [], []
    for vendor in vendors():
        try:
            if inventory is not None:
                part = vendor.dumped_part(inventory)
            else:
                read = partial(vendor.plugin_part, host_root, dev_root)
                part = driver_calls.call_driver(vendor, "inventory", read)
        except GpuhookError as error:
            failures.append(f"{vendor.domain}: {error.message}")
        except Exception as error:  # a bug, too: a vendor that fails must not affect another
            failures.append(f"{vendor.domain}: {error!r}")
        else:
            parts += [] if part is None else [part]
    return tuple(parts), tuple(failures)


def with_lost(now: NodeSnapshot, last: NodeSnapshot) -> NodeSnapshot:
    """Return `now` with what the vendors' parts have lost since `last`, as unusable.

    A part that could not be read is that of `last`.
    """
    parts = []
    for vendor in vendors():
        part, before = now.part(vendor.domain), last.part(vendor.domain)
        reason = next((text for text in now.failures if text.startswith(vendor.domain)), "")
        if before is not None:
            part = replace(before, trouble=reason) if reason else vendor.with_lost(part, before)
        parts += [] if part is None else [part]
    return replace(now, parts=tuple(parts))


def _take_own(launch: Launch, configuration: Configuration) -> NodeSnapshot:
    if launch.inventory is not None:
        from gpuhook.vendors.nvidia.inventory import dump_file

        dump = dump_file.load(launch.inventory)
        return NodeSnapshot(dump, dump, is_dump=True)
    places = host_paths.places(
        configuration.flags, launch.host_root, launch.node_driver_root, launch.node_dev_root
    )
    before = signature(launch.host_root, "")
    try:
        seen, links = _query_driver(launch, places)
    except DriverError as trouble:
        return NodeSnapshot(places=places, signature=before, trouble=trouble)
    after = signature(launch.host_root, _libcuda(seen))
    # Compared last, so that `after` belongs to the node that was queried.
    has_changed_meanwhile = signature(launch.host_root, "") != before
    return NodeSnapshot(
        node=host_paths.at_host(seen, places),
        seen=seen,
        places=places,
        topology=links,
        # `before` lacks libcuda and never equals a later signature: a new snapshot follows.
        signature=before if has_changed_meanwhile else after,
    )


def with_last_memory(now: NodeSnapshot, last: NodeSnapshot) -> NodeSnapshot:
    """Return `now` with the memory sizes of `last` for GPUs whose size is unknown.

    The driver reports no size for a lost GPU. Without one, its memory units would disappear from
    the kubelet's list instead of being listed as unhealthy.
    """
    known: dict[str | None, int | None]
    known = {gpu.uuid: gpu.memory_bytes for gpu in last.node.gpus if gpu.uuid}
    if all(gpu.memory_bytes is not None or not known.get(gpu.uuid) for gpu in now.node.gpus):
        return now
    gpus = tuple(
        replace(gpu, memory_bytes=known.get(gpu.uuid)) if gpu.memory_bytes is None else gpu
        for gpu in now.node.gpus
    )
    return replace(now, node=replace(now.node, gpus=gpus))


def with_parts(last: NodeSnapshot, now: NodeSnapshot) -> NodeSnapshot:
    """Return `last` with the other vendors' parts of `now`, in which NVML does not answer.

    NVML's GPUs remain, as unhealthy, and the other GPUs are those of now.
    """
    return replace(last, trouble=now.trouble, parts=now.parts, failures=now.failures)


def has_other_parts(last: NodeSnapshot, launch: Launch) -> bool:
    """Return whether the devices of the other vendors have changed since the last snapshot.

    Their drivers may block it.
    """
    return launch.inventory is None and any(
        vendor.plugin_token(launch.host_root) != _token(last, vendor.domain) for vendor in vendors()
    )


def has_other_gpus(last: NodeSnapshot, launch: Launch) -> bool:
    """Return whether /proc, which shows the GPUs of NVML, has changed since the last snapshot."""
    return (
        launch.inventory is None
        and signature(launch.host_root, _libcuda(last.seen)) != last.signature
    )


def _token(snapshot: NodeSnapshot, domain: str) -> str:
    part = snapshot.part(domain)
    return "" if part is None else part.token


def _query_driver(launch: Launch, places: Places) -> tuple[Node, Topology]:
    search = launch.library_search_path
    library = nvml_library.find(places.driver, library=launch.nvml_library, search_paths=search)
    # Starting NVML may wake every GPU, so it is started once for all queries.
    with nvml_inventory.opened(library, host_fingerprint.module_version(launch.host_root) or None):
        seen = discover.node(
            discover.Roots(places.driver, places.dev, launch.host_root, library, search),
            require_nodes=False,
            require_files=False,
            create_nodes=True,
        )
        return seen, topology.links(seen.gpus)


def _libcuda(seen: Node) -> str:
    return next((file.host_path for file in seen.files if file.soname == "libcuda.so.1"), "")
