# SPDX-License-Identifier: Apache-2.0
"""The offer of the device plugin: devices and their names, health, usage, shares and labels."""

from __future__ import annotations

from typing import Any, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gpuhook.cdi.hot.container_edits import Spec
    from gpuhook.vendors.labels.vendor_labels import LabelOffer, VendorLabels
    from gpuhook.vendors.plugin.plugin_place import PluginPlace
    from gpuhook.vendors.plugin.vendor_device import ComputeShare, NamedDevices, NamingRules
    from gpuhook.vendors.plugin.vendor_part import (
        DeviceCheck,
        DriverMounts,
        ExporterWords,
        VendorPart,
    )
    from gpuhook.vendors.usage.usage_device import UsageDevice


class PluginVendor(Protocol):
    """A vendor's part of a node for the device plugin; a VendorPart has the devices of a moment."""

    @property
    def exporter(self) -> ExporterWords | None:
        """The vendor's exporter that judges the health of its GPUs, None without one."""

    @property
    def usual_resources(self) -> str:
        """The pattern of the names that the vendor's plugin and gpuhook offer by default."""

    @property
    def unshared(self) -> Mapping[str, str]:
        """The reasons for each key of the plugin's `sharing` that the vendor's GPUs do not have."""

    @property
    def deadline(self) -> float | None:
        """The seconds in which plugin_part() must return, None for as long as the driver needs."""

    def plugin_part(self, place: PluginPlace) -> VendorPart | None:
        """Return the vendor's part of a snapshot for the device plugin, None without a driver.

        A driver whose library does not answer is the `error` of the part. Raises GpuhookError for
        wrong options.
        """

    def plugin_token(self, host_root: str, last: VendorPart | None) -> str:
        """Return the current token of plugin_part(), as far as `last` shows the node's files."""

    def with_lost(self, now: VendorPart | None, last: VendorPart) -> VendorPart | None:
        """Return a part with what it lost since `last`.

        `now` is None if the node no longer has a GPU or a driver of the vendor.
        """

    def dumped_part(self, name: str) -> VendorPart | None:
        """Return the vendor's part of the node in an inventory file or profile, as plugin_part().

        Raises what inventory_file.load() raises.
        """

    def holds_nodes(self, root: str) -> bool:
        """Return whether the device nodes of the driver are below a directory."""

    @property
    def auxiliary_classes(self) -> Collection[str]:
        """The classes of auxiliary_devices.py that containers get in addition to their devices."""

    def driver_mounts(self, part: VendorPart, directory: str) -> DriverMounts:
        """Return the driver's files below `directory` for a runtime without GPU support.

        Nothing for a vendor whose containers get no files of the driver.
        """

    def driver_spec(
        self, part: VendorPart, hook: str | None, host_root: str
    ) -> tuple[Spec, tuple[str, ...]] | None:
        """Return a CDI spec of the devices of a part with files of the driver, and warnings.

        None for a vendor whose containers get no files. The devices have the names of their UUIDs,
        and the vendor that of plugin_vendor(). `hook` is the path of gpuhook's hook on the host,
        None for a spec without hooks. Raises GpuhookError.
        """

    def inventory_part(self, inventory: Any) -> VendorPart:
        """Return the part of an inventory of this vendor, which has no token."""

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

    @property
    def usage_source(self) -> str:
        """The name in metrics of what reports usage()."""

    def usage(self, part: VendorPart, host_root: str) -> tuple[UsageDevice, ...]:
        """Return the present usage of the devices of a part.

        Raises an error of the driver, or of its files.
        """

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

    def labels(self, part: VendorPart, offer: LabelOffer, host_root: str | None) -> VendorLabels:
        """Return the labels that the devices of a part, their driver and their offer give a node.

        `host_root` is where the node's files are, None for a node that is not this machine.
        """
