# SPDX-License-Identifier: Apache-2.0
"""KFD's topology of a node: its GPUs and partitions, their memory and their links.

KFD refuses to read the files of a GPU (EPERM) to a process whose device cgroup does not allow the
render node of the GPU (kfd_topology.c, kfd_devcgroup_check_permission). The number of a node
changes if another device disappears: it means nothing beyond one read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.vendors.amd.hot import amd_sysfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_NODES = 4096
_MAX_LINKS = 32768  # of all nodes together: 128 partitions have 16,256
_LINKS = ("io_links", "p2p_links")  # direct ones, and those through the host
_VIDEO_MEMORY = (1, 2)  # the heap types of visible and of other memory of a GPU


@dataclass(frozen=True, slots=True)
class KfdLink:
    """A link to the node with the number `target`."""

    target: int
    type: int
    weight: int | None


@dataclass(frozen=True, slots=True)
class KfdNode:
    """A GPU or a partition; `properties` are KFD's, as far as they are numbers."""

    number: int
    gpu_id: int | None
    memory_bytes: int | None
    properties: dict[str, int] = field(default_factory=dict)
    links: tuple[KfdLink, ...] = ()

    def fact(self, name: str) -> int | None:
        """Return a property, None for 0: KFD writes 0 for what a GPU does not have."""
        return self.properties.get(name) or None

    @property
    def render_minor(self) -> int | None:
        """The minor of its render node."""
        return self.fact("drm_render_minor")

    @property
    def place(self) -> tuple[int | None, int, int]:
        """The PCI domain (None: an old kernel does not write it), bus and device of its GPU."""
        location = self.properties.get("location_id", 0)
        return self.properties.get("domain"), location >> 8 & 0xFF, location >> 3 & 0x1F


@dataclass(frozen=True, slots=True)
class KfdTopology:
    """The nodes of GPUs and partitions in the order of their numbers.

    `is_present` is False for a kernel without KFD. `denied` counts the nodes that this process may
    not read.
    """

    is_present: bool
    nodes: tuple[KfdNode, ...] = ()
    denied: int = 0
    warnings: tuple[str, ...] = ()


def read(host_root: str) -> KfdTopology:
    """Return the topology of the node whose /sys is below `host_root`."""
    root = host_root.rstrip("/") + amd_sysfs.TOPOLOGY
    numbers = _numbers(root + "/nodes")
    warnings = []
    if len(numbers) > _MAX_NODES:
        warnings.append(f"KFD has {len(numbers)} nodes: only the first {_MAX_NODES} were read")
    nodes, denied, budget = [], 0, [_MAX_LINKS]
    for number in numbers[:_MAX_NODES]:
        try:
            node = _read_node(f"{root}/nodes/{number}", number, budget)
        except PermissionError:
            denied += 1
            continue
        except OSError:
            continue  # it disappeared meanwhile
        if node is not None:
            nodes.append(node)
    if budget[0] <= 0:
        warnings.append(f"KFD has more than {_MAX_LINKS} links: the others were not read")
    return KfdTopology(bool(numbers), tuple(nodes), denied, tuple(warnings))


def _numbers(directory: str) -> list[int]:
    """Return the numbers among the names in a directory in order."""
    names = amd_sysfs.names(directory)
    return sorted(int(name) for name in names if amd_sysfs.is_number(name))


def _read_node(directory: str, number: int, budget: list[int]) -> KfdNode | None:
    """Return a node, None for a CPU. Raises OSError, also if a part of the files has gone."""
    gpu_id = amd_sysfs.text(directory + "/gpu_id").strip()
    if gpu_id == "0":
        return None
    return KfdNode(
        number,
        int(gpu_id) if amd_sysfs.is_number(gpu_id) else None,
        _memory_bytes(directory),
        dict(_properties(directory + "/properties")),
        tuple(_read_links(directory, budget)),
    )


def _properties(path: str) -> Iterator[tuple[str, int]]:
    """Yield the lines `name number` of a file, without others."""
    for line in amd_sysfs.text(path).splitlines():
        name, _, value = line.partition(" ")
        if amd_sysfs.is_number(value):
            yield name, int(value)


def _memory_bytes(directory: str) -> int | None:
    """Return the memory of a node's own banks, None without one."""
    sizes = []
    for number in _numbers(directory + "/mem_banks"):
        try:
            bank = dict(_properties(f"{directory}/mem_banks/{number}/properties"))
        except PermissionError:
            raise
        except OSError:
            continue
        if bank.get("heap_type") in _VIDEO_MEMORY:
            sizes.append(bank.get("size_in_bytes", 0))
    return sum(sizes) or None


def _read_links(directory: str, budget: list[int]) -> Iterator[KfdLink]:
    """Yield the links of a node until `budget` is used up; old kernels have no p2p_links."""
    for kind in _LINKS:
        for number in _numbers(f"{directory}/{kind}"):
            budget[0] -= 1
            if budget[0] <= 0:
                return
            try:
                link = dict(_properties(f"{directory}/{kind}/{number}/properties"))
            except PermissionError:
                raise
            except OSError:
                continue
            if "node_to" in link:
                yield KfdLink(link["node_to"], link.get("type", 0), link.get("weight"))
