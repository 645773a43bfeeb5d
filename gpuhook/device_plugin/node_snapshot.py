# SPDX-License-Identifier: Apache-2.0
"""A look at the node: its GPUs, their links, and all that an allocation needs of it.

This blocks for as long as NVML takes, so the plugin looks in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gpuhook.device_plugin.allocate import host_paths
from gpuhook.device_plugin.allocate.host_paths import Places
from gpuhook.errors import DriverError, GpuhookError
from gpuhook.vendors.nvidia.devices.node_signature import signature
from gpuhook.vendors.nvidia.inventory.inventory import Driver, Node
from gpuhook.vendors.nvidia.nvml.topology import Topology

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.launch_options import Launch


@dataclass(frozen=True, slots=True)
class Look:
    """What there was to see. `seen` has paths as this process opens them, `node` the host's.

    `trouble` is why the driver did not answer, or None; then there is nothing else. `signature`
    tells, without NVML, whether it is time for another look; it is empty if the node changed during
    this one, which may have seen half of it.
    """

    node: Node = field(default_factory=lambda: Node(Driver()))
    seen: Node = field(default_factory=lambda: Node(Driver()))
    places: Places = field(default_factory=Places)
    topology: Topology = field(default_factory=Topology)
    signature: tuple[str, ...] = ()
    trouble: GpuhookError | None = None
    is_dump: bool = False  # from --inventory: there is no driver to ask

    @property
    def library(self) -> tuple[str, str | None]:
        """The arguments of nvml_inventory.opened(): NVML's path, the kernel module's version."""
        return str(self.seen.driver.nvml), self.seen.driver.module_version

    @property
    def is_whole(self) -> bool:
        """Whether the driver answered and has lost no GPU: /proc does not tell when one is back."""
        return self.trouble is None and all(gpu.lost is None for gpu in self.seen.gpus)


def look(launch: Launch, configuration: Configuration) -> Look:
    """Return what the node has now; a driver that is missing or broken is its `trouble`.

    Raises GpuhookError for what is wrong with the options, and OSError.
    """
    if launch.inventory is not None:
        from gpuhook.vendors.nvidia.inventory import dump_file

        dumped = dump_file.load(launch.inventory)
        return Look(dumped, dumped, is_dump=True)
    places = host_paths.places(
        configuration.flags, launch.host_root, launch.node_driver_root, launch.node_dev_root
    )
    before = signature(launch.host_root, "")
    try:
        seen, topology = _asked(launch, places)
    except DriverError as trouble:
        return Look(places=places, signature=before, trouble=trouble)
    whole = signature(launch.host_root, _libcuda(seen))
    # Compared last, so that `whole` is of the node that was asked.
    changed_meanwhile = signature(launch.host_root, "") != before
    return Look(
        node=host_paths.at_host(seen, places),
        seen=seen,
        places=places,
        topology=topology,
        # `before` is no signature of a look that succeeded, so the next comparison sees a change.
        signature=before if changed_meanwhile else whole,
    )


def remembering(now: Look, last: Look) -> Look:
    """Return `now`, with the memory of GPUs that the driver does not tell any more as it was last.

    A lost GPU has no size: what is counted by memory would be gone from the kubelet's list, where
    it is to be unhealthy.
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


def has_changed(last: Look, launch: Launch) -> bool:
    """Return whether the node is not what it was at the last look, as far as /proc can tell."""
    if launch.inventory is not None:
        return False
    return signature(launch.host_root, _libcuda(last.seen)) != last.signature


def _asked(launch: Launch, places: Places) -> tuple[Node, Topology]:
    from gpuhook.vendors.nvidia.hot import host_fingerprint
    from gpuhook.vendors.nvidia.inventory import discover
    from gpuhook.vendors.nvidia.nvml import nvml_inventory, topology
    from gpuhook.vendors.nvidia.warm import nvml_library

    search = launch.library_search_path
    library = nvml_library.find(places.driver, library=launch.nvml_library, search_paths=search)
    # Starting NVML may wake every GPU: it stays started until all has been asked.
    with nvml_inventory.opened(library, host_fingerprint.module_version(launch.host_root) or None):
        seen = discover.node(
            discover.Roots(places.driver, places.dev, launch.host_root),
            nvml_library_path=library,
            library_search_paths=search,
            require_nodes=False,
            require_files=False,
            create_nodes=True,
        )
        return seen, topology.links(seen.gpus)


def _libcuda(seen: Node) -> str:
    found = (file.host_path for file in seen.files if file.soname == "libcuda.so.1")
    return next(found, "")
