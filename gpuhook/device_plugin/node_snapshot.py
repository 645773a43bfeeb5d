# SPDX-License-Identifier: Apache-2.0
"""A snapshot of the node: its GPUs, their links, and the paths that an allocation needs.

The driver of each vendor is queried on its own. Taking a snapshot blocks for as long as a driver
takes, so the plugin does it in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from gpuhook.device_plugin import driver_calls
from gpuhook.device_plugin.allocate import host_paths
from gpuhook.errors import GpuhookError
from gpuhook.vendors.catalogue import vendor_of_resource, vendors
from gpuhook.vendors.plugin.plugin_place import Places, PluginPlace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.vendors.interfaces.vendor_interface import Vendor
    from gpuhook.vendors.plugin.vendor_part import VendorPart


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """The node at one moment: `parts` by vendor.

    `failures` are the vendors whose part could not be read, with the reason. `tokens` by domain
    show later whether a new snapshot is due, also for a vendor that the node does not have.
    """

    places: Places = field(default_factory=Places)
    is_dump: bool = False  # from --inventory: there is no driver to query
    parts: tuple[VendorPart, ...] = ()
    failures: tuple[str, ...] = ()
    tokens: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether all drivers answered and have lost no GPU."""
        return not self.failures and all(part.is_whole and not part.trouble for part in self.parts)

    @property
    def error(self) -> GpuhookError | None:
        """The error of the first driver that did not answer."""
        return next((part.error for part in self.parts if part.error is not None), None)

    @property
    def inventories(self) -> tuple[object, ...]:
        """The inventories of `parts`."""
        return tuple(part.inventory for part in self.parts)

    def part(self, domain: str) -> VendorPart | None:
        """Return the part of a vendor."""
        return next((part for part in self.parts if part.domain == domain), None)


def take(launch: Launch, configuration: Configuration) -> NodeSnapshot:
    """Return a snapshot; a driver that does not answer is the error of its part.

    Raises the error of a vendor, such as a GpuhookError for wrong options, if no other has a part.
    """
    places = Places()
    if launch.inventory is None:
        places = host_paths.places(
            configuration.flags, launch.host_root, launch.node_driver_root, launch.node_dev_root
        )
    place = PluginPlace(
        launch.host_root,
        launch.node_dev_root,
        places,
        launch.nvml_library,
        launch.library_search_path,
    )
    parts, errors = _parts(vendors(), launch.inventory, place)
    if errors and not parts:
        raise next(iter(errors.values()))
    # The node may have GPUs of some vendors only.
    present = tuple(part for part in parts if part.has_hardware)
    return NodeSnapshot(
        places,
        is_dump=launch.inventory is not None,
        parts=present or _absent(parts, errors),
        failures=_failures(errors),
        tokens={part.domain: part.token for part in parts},
    )


def _absent(parts: Iterable[VendorPart], errors: Mapping[str, Exception]) -> tuple[VendorPart, ...]:
    """Return the parts of a node that has no hardware of these vendors.

    If the driver of another vendor does not answer, its error is the reason, not that theirs is
    missing.
    """
    known = (error for error in errors.values() if isinstance(error, GpuhookError))
    reason = next(known, None)
    return tuple(
        part if reason is None or part.error is None else replace(part, error=reason)
        for part in parts
    )


def take_parts(
    chosen: Iterable[Vendor], inventory: str | None, place: PluginPlace
) -> tuple[tuple[VendorPart, ...], tuple[str, ...]]:
    """Return the parts of these vendors, and why some could not be read.

    They are of the node in a file or profile, else of the node at `place`.
    """
    parts, errors = _parts(chosen, inventory, place)
    return parts, _failures(errors)


def _parts(
    chosen: Iterable[Vendor], inventory: str | None, place: PluginPlace
) -> tuple[tuple[VendorPart, ...], dict[str, Exception]]:
    """Return the parts of the vendors, and the errors of others by domain."""
    parts, errors = [], {}
    for vendor in chosen:
        try:
            if inventory is not None:
                part = vendor.dumped_part(inventory)
            else:
                read = partial(vendor.plugin_part, place)
                part = driver_calls.call_driver(vendor, "inventory", read)
        except Exception as error:  # a bug, too: a vendor that fails must not affect another
            errors[vendor.domain] = error
        else:
            parts += [] if part is None else [part]
    return tuple(parts), errors


def _failures(errors: Mapping[str, Exception]) -> tuple[str, ...]:
    texts = {
        domain: error.message if isinstance(error, GpuhookError) else repr(error)
        for domain, error in errors.items()
    }
    return tuple(f"{domain}: {text}" for domain, text in texts.items())


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


def has_other_devices(domain: str, last: NodeSnapshot, launch: Launch) -> bool:
    """Return whether the devices of a vendor have changed since the last snapshot.

    The driver may block it.
    """
    if launch.inventory is not None:
        return False
    token = vendor_of_resource(domain).plugin_token(launch.host_root, last.part(domain))
    return token != last.tokens.get(domain, "")
