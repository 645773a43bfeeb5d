# SPDX-License-Identifier: Apache-2.0
"""The offer of gpuhook's device plugin on a node, by the node's facts and a configuration.

The code of the plugin computes it; nothing is started or written, and no driver is asked. The links
of NVIDIA's GPUs, the extras (GDRCopy, GDS, MOFED, IMEX) and the state of MPS are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuhook.device_plugin.allocate import vendor_contexts
from gpuhook.device_plugin.allocate.vendor_contexts import Additions
from gpuhook.device_plugin.config.config_source import ConfigSource, load
from gpuhook.device_plugin.kubelet.kubelet_answers import KnownNode, KubeletAnswers
from gpuhook.device_plugin.mps import mps_plan as mps
from gpuhook.device_plugin.offer import resources, sharing_notes
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuhook.device_plugin.allocate.allocation_context import Specs
    from gpuhook.device_plugin.allocate.container_allocation import Allocation
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.offer.offered_devices import Device, Resource
    from gpuhook.device_plugin.offer.sharing_notes import SharingNote
    from gpuhook.vendors.vendor_part import VendorPart


@dataclass(frozen=True, slots=True)
class PluginOffer:
    """The offered resources by name, the plugin's answers, and the isolation of each resource.

    `unusable` has the reasons of the unhealthy devices, by UUID.
    """

    resources: Mapping[str, Resource]
    answering: KubeletAnswers
    isolation: tuple[SharingNote, ...]
    unusable: Mapping[str, str]
    warnings: tuple[str, ...]


def configuration(path: str | None) -> Configuration:
    """Return the plugin's configuration in a file, the defaults for None.

    Also accepts files of NVIDIA's plugin. Raises GH1800 for a file with errors, and GH1801
    for a file that cannot be read.
    """
    return load(ConfigSource(file=path or "")).configuration


def plugin_offer(parts: Sequence[VendorPart], chosen: Configuration) -> PluginOffer:
    """Return the plugin's offer on a node, whose drivers are assumed to enforce memory limits.

    `parts` have the GPUs of the vendors, at least one. Raises what offer.resources.offered()
    raises.
    """
    first, *others = (part.inventory for part in parts)
    offer = resources.offered(first, chosen, *others)
    unusable = resources.unusable(first, *others)
    unusable |= vendor_contexts.lost_devices(offer.resources, parts)
    specs = _specs(parts, chosen, offer.resources)
    mps_allocations = _mps(offer.resources, chosen.flags.mps_root, unusable)
    made = vendor_contexts.with_parts(chosen, parts, specs, Additions(mps=mps_allocations))
    unusable |= vendor_contexts.blocked_devices(offer.resources, made)
    links = {part.domain: part.links for part in parts}
    known = KnownNode(chosen, replace(made, unhealthy=unusable), links)
    guard = chosen.own.guard.ends_processes
    return PluginOffer(
        resources={resource.name: resource for resource in offer.resources},
        answering=KubeletAnswers(known, lambda _: None),
        isolation=sharing_notes.sharing_notes(offer.resources, guard=guard),
        unusable=unusable,
        warnings=(
            *(warning for part in parts for warning in part.warnings),
            *offer.warnings,
            *(warning for one in specs.values() for warning in one.warnings),
            *made.warnings,
            *_unknown(chosen),
        ),
    )


def _specs(
    parts: Sequence[VendorPart], chosen: Configuration, offered: tuple[Resource, ...]
) -> dict[str, Specs]:
    """Return the CDI specs of each vendor, with gpuhook's hook."""

    def describe(part: VendorPart, devices: Iterable[Device]) -> Specs:
        from gpuhook.device_plugin.allocate import plugin_specs  # it loads the code for specs
        from gpuhook.vendors.spec_choices import DEFAULT_HOOK_PATH

        hook = plugin_specs.Hook(chosen.flags.plugin.cdi_hook_path or DEFAULT_HOOK_PATH)
        return plugin_specs.update(part, devices, (), hook, directory=None)

    return vendor_contexts.updated_specs(chosen, parts, offered, describe)


def _mps(
    offered: tuple[Resource, ...], root: str, unusable: dict[str, str]
) -> dict[str, Allocation]:
    """Return the allocation of MPS daemons, and add the devices without one to `unusable`."""
    given = {}
    for resource in offered:
        try:
            plan = mps.plan(resource, root)
        except GpuhookError as error:
            unusable.update((device.uuid, error.message) for device in resource.devices)
            continue
        if plan is not None:
            given[resource.name] = plan.allocation
    return given


def _unknown(chosen: Configuration) -> list[str]:
    flags = chosen.flags
    extras = {
        "gdrcopyEnabled": flags.gdrcopy_enabled,
        "gdsEnabled": flags.gds_enabled,
        "mofedEnabled": flags.mofed_enabled,
        "imex.channelIDs": bool(chosen.imex.channel_ids),
    }
    enabled = [name for name, is_on in extras.items() if is_on]
    return [f"{', '.join(enabled)}: their additions are not shown"] if enabled else []
