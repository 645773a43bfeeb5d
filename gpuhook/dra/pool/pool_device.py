# SPDX-License-Identifier: Apache-2.0
"""One device of a ResourceSlice, and the pool of a driver on this node."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.vendors.plugin.dra_device import Version as Version  # noqa: PLC0414, TC001 # of attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.vendors.plugin.vendor_device import Device

MEMORY = "memory"
SLOTS = "slots"
RESOURCE = "resource"  # an attribute: the extended resource name, for the selectors of its class


@dataclass(frozen=True, slots=True)
class Capacity:
    """A capacity of a device: bytes of memory, or a number.

    The others are the request policy of a device that several claims share, and 0 without: a claim
    without a request consumes `default`, and each request is rounded up to `least` plus a multiple
    of `step`. A request above `most` never fits; 0: `value` is the most.
    """

    value: int
    default: int = 0
    least: int = 0
    step: int = 0
    most: int = 0


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint; `effect` is None (information), NoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"
    time_added: str = ""  # RFC 3339


@dataclass(frozen=True, slots=True)
class PoolDevice:
    """A device as a ResourceSlice offers it.

    `attributes` are by name; a name without a domain is of the driver. `counters` are what the
    device consumes of each counter set. `is_shared`: several claims can have it, and consume
    its `capacity`. `replica` is the number of one of `replicas` devices that are one GPU, for API
    servers that do not know shared devices.
    """

    name: str  # "gpu-0"
    device: Device
    attributes: Mapping[str, str | int | bool | Version] = field(default_factory=dict)
    capacity: Mapping[str, Capacity] = field(default_factory=dict)
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    is_shared: bool = False
    replica: int | None = None
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Pool:
    """The devices of one driver on this node, in their stable order, and the counter sets.

    `reason` is why there is no device.
    """

    driver: str  # "gpu.nvidia.com"
    name: str  # the name of the node
    devices: tuple[PoolDevice, ...] = ()
    counter_sets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    reason: str = ""

    def device(self, name: str) -> PoolDevice | None:
        """Return the device with this name."""
        return next((one for one in self.devices if one.name == name), None)
