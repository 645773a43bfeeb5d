# SPDX-License-Identifier: Apache-2.0
"""The labels of a node by one vendor, and the offer that they describe."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.vendors.device_isolation import BY_NOBODY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuhook.vendors.vendor_device import Device

NOT_SHARED = "none"


@dataclass(frozen=True, slots=True)
class OfferedDevice:
    """A device with the number of its units in the offer.

    `is_shared`: also with one replica, if the memory is too small for more. `limit_bytes` is the
    limit of one replica, None without, and `memory_by` what enforces it. `is_renamed`: the name of
    its resource shows that it is shared.
    """

    device: Device
    replicas: int
    is_shared: bool = False
    limit_bytes: int | None = None
    memory_by: str = BY_NOBODY
    sharing: str = NOT_SHARED
    is_renamed: bool = False


@dataclass(frozen=True, slots=True)
class LabelOffer:
    """The offered `devices` in the order of their resources, and the options of labels.

    The devices may be of other vendors, too, and include those that no container can get. `kinds`
    are the chosen ones of label_kinds, `strategy` names parts of GPUs, `sharing` is the strategy of
    the configuration. `timestamp` is in seconds since 1970. `is_only`: no other vendor is here.
    """

    devices: tuple[OfferedDevice, ...] = ()
    kinds: Collection[str] = ()
    strategy: str = "none"
    sharing: str = NOT_SHARED
    excluded: tuple[str, ...] = ()
    machine_file: str = ""
    timestamp: int | None = None
    is_only: bool = True

    def of(self, usable: Collection[str]) -> tuple[OfferedDevice, ...]:
        """Return the devices with the ids `usable`."""
        return tuple(one for one in self.devices if one.device.uuid in usable)


@dataclass(frozen=True, slots=True)
class VendorLabels:
    """The labels that a vendor's hardware, its driver and its offered devices give a node.

    `names` is the pattern of the names that they have on some node. `is_owner`: all labels with
    such a name that are not in `values` are removed from a node, also those of the vendor's
    labeller; false for a vendor whose labeller may run, too. `unread` is the pattern of names whose
    values need the files of a node that is not this machine. `model` is that of most devices, "" if
    none is offered.
    """

    values: dict[str, str] = field(default_factory=dict)
    names: str = ""
    is_owner: bool = False
    warnings: tuple[str, ...] = ()
    unread: str = ""
    model: str = ""
