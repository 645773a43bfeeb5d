# SPDX-License-Identifier: Apache-2.0
"""A vendor's part of what the device plugin knows of a node, in any vendor's terms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.errors import GpuhookError


class LinkScores(Protocol):
    """The distances of devices from each other."""

    def score(self, one: str, other: str) -> int:
        """Return how near two devices are, by UUID: more is nearer, 0 is unknown."""


class NumberedNode(Protocol):
    """A character device node: `path` as containers see it, `host_path` on the host."""

    @property
    def path(self) -> str: ...
    @property
    def host_path(self) -> str: ...
    @property
    def major(self) -> int: ...
    @property
    def minor(self) -> int: ...
    @property
    def mode(self) -> int:
        """The permission bits."""

    @property
    def uid(self) -> int: ...
    @property
    def gid(self) -> int: ...


@dataclass(frozen=True, slots=True)
class PairScores:
    """Scores by the UUIDs of two devices, in order; a missing pair has the lowest score, 0."""

    pairs: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def score(self, one: str, other: str) -> int:
        return self.pairs.get((min(one, other), max(one, other)), 0)


@dataclass(frozen=True, slots=True)
class ExporterWords:
    """A metrics exporter that judges the health of devices: a socket, and its gRPC methods.

    The methods have the same messages (exporter.proto); an exporter serves one of them.
    """

    socket: str
    methods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VendorPart:
    """One vendor's GPUs at one moment.

    `inventory` is the vendor's own model, with the paths of the host, and has the `lost` devices,
    too. `token` changes with the devices, and is read without a driver call. `trouble` is why the
    driver serves no GPU. `error` is why its library did not answer: the devices are unknown, or
    those of before.
    """

    domain: str  # "amd.com"
    inventory: object
    token: str = ""
    trouble: str = ""
    is_whole: bool = True  # no GPU is lost
    links: LinkScores = field(default_factory=PairScores)
    control_nodes: tuple[str, ...] = ()  # the nodes that a container gets with any device
    device_nodes: tuple[NumberedNode, ...] = ()  # as far as they exist
    lost: Mapping[str, str] = field(default_factory=dict)  # reasons by UUID
    warnings: tuple[str, ...] = ()
    error: GpuhookError | None = None
    has_hardware: bool = True  # the node has a GPU or the driver of the vendor
    library: str = ""  # the path of the driver's library, "" for a vendor without
    files_trouble: str = ""  # why the driver's files are unknown


@dataclass(frozen=True, slots=True)
class DriverMounts:
    """Mounts of a driver's files, (host path, path in containers), and the variables they need."""

    mounts: tuple[tuple[str, str], ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceCheck:
    """The state of one device, read from the kernel.

    `fault` is why no container can use it. `errors` are counters whose rise is a fault, by a word
    for each. `is_busy`: the device did not answer for now, so that its last state applies.
    """

    fault: str = ""
    errors: Mapping[str, int] = field(default_factory=dict)
    is_busy: bool = False


def plugin_vendor(domain: str) -> str:
    """Return the vendor in the names of the device plugin's CDI specs."""
    return f"k8s.device-plugin.{domain}"
