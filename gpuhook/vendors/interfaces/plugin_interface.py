# SPDX-License-Identifier: Apache-2.0
"""The offer of the device plugin: devices and their names, health, usage, shares and labels."""

from __future__ import annotations

from typing import Any, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gpuhook.vendors.usage_device import UsageDevice
    from gpuhook.vendors.vendor_device import ComputeShare, NamedDevices, NamingRules
    from gpuhook.vendors.vendor_labels import VendorLabels
    from gpuhook.vendors.vendor_part import (
        DeviceCheck,
        ExporterWords,
        VendorPart,
    )


class PluginVendor(Protocol):
    """A vendor's part of a node for the device plugin; a VendorPart has the devices of a moment."""

    @property
    def exporter(self) -> ExporterWords | None:
        """The vendor's exporter that judges the health of its GPUs, None without one."""

    @property
    def unshared(self) -> Mapping[str, str]:
        """The reasons for each key of the plugin's `sharing` that the vendor's GPUs do not have."""

    def plugin_part(self, host_root: str, dev_root: str | None) -> VendorPart | None:
        """Return the vendor's part of a snapshot for the device plugin.

        None: the node has no such part, or the plugin queries this vendor's driver itself.
        """

    def plugin_token(self, host_root: str) -> str:
        """Return the current token of plugin_part()."""

    def with_lost(self, now: VendorPart | None, last: VendorPart) -> VendorPart:
        """Return a part with the devices that it lost since `last`; None: all of them."""

    def dumped_part(self, name: str) -> VendorPart | None:
        """Return the vendor's part of the node in an inventory file or profile, as plugin_part().

        Raises what inventory_file.load() raises.
        """

    def named_devices(self, inventory: Any, rules: NamingRules) -> NamedDevices:
        """Return the devices of an inventory, each with the name of its resource."""

    def unusable(self, inventory: Any) -> dict[str, str]:
        """Return the reason for each device that no container can get, by its UUID."""

    def check_devices(
        self, part: VendorPart, host_root: str, dev_root: str | None
    ) -> dict[str, DeviceCheck]:
        """Return the state of each device of a part by its UUID, from the kernel's files."""

    def free_memory(self, part: VendorPart, uuid: str, host_root: str) -> int | None:
        """Return the free bytes of a device of a part, None if unknown."""

    def usage(self, part: VendorPart, host_root: str) -> tuple[UsageDevice, ...]:
        """Return the present usage of the devices of a part, from the kernel's files."""

    def compute_mask(self, shares: Sequence[ComputeShare]) -> dict[str, str]:
        """Return the variables that give a container its shares of compute units, if there are any.

        `shares` are those of all of its devices, in their order.
        """

    @property
    def label_kinds(self) -> tuple[str, ...]:
        """The kinds of node labels that the configuration can choose from."""

    @property
    def default_label_kinds(self) -> tuple[str, ...]:
        """Those that a configuration which chooses none has."""

    def labels(
        self, part: VendorPart, kinds: Collection[str], host_root: str | None
    ) -> VendorLabels:
        """Return the labels that the devices of a part and their driver give a node.

        `host_root` is where the node's files are, None for a node that is not this machine.
        """
