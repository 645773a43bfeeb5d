# SPDX-License-Identifier: Apache-2.0
"""What gpuhook's device plugin offers on a node, by the node's facts and a configuration.

The plugin's own code works it out; nothing is started, written or asked of a driver. Without
asking, nobody knows the links of GPUs, the extras (GDRCopy, GDS, MOFED, IMEX) and if MPS would run.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.device_plugin.allocate import allocation_context
from gpuhook.device_plugin.allocate.allocation_context import CDI_STRATEGIES, Specs
from gpuhook.device_plugin.allocate.container_allocation import Allocation
from gpuhook.device_plugin.config.config_source import ConfigSource, load
from gpuhook.device_plugin.kubelet.kubelet_answers import KnownNode, KubeletAnswers
from gpuhook.device_plugin.mps import mps_plan as mps
from gpuhook.device_plugin.offer import memory_bounds, resources, sharing_notes
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.offer.offered_devices import Resource
    from gpuhook.device_plugin.offer.sharing_notes import SharingNote
    from gpuhook.vendors.nvidia.inventory.inventory import Node


@dataclass(frozen=True, slots=True)
class PluginOffer:
    """The resources on offer by name, who answers for them, and what is isolated in each.

    `unusable` has the reasons of devices that the kubelet is told are unhealthy, by UUID.
    """

    resources: Mapping[str, Resource]
    answering: KubeletAnswers
    told: tuple[SharingNote, ...]
    unusable: Mapping[str, str]
    warnings: tuple[str, ...]


class _Unlinked:
    """Links of GPUs that nobody was asked for."""

    def score(self, _first: str, _second: str, /) -> int:
        return 0


def configuration(path: str | None) -> Configuration:
    """Return what a plugin's configuration file says, the defaults for None.

    NVIDIA's files are read as well. Raises GH1800 for a file with errors and GH1801 for one that
    cannot be read.
    """
    return load(ConfigSource(file=path or "")).configuration


def offering(node: Node, chosen: Configuration, unheld: tuple[str, str] = ("", "")) -> PluginOffer:
    """Return what the plugin offers on `node`; raises what offer.resources.offered() does.

    `unheld` is why the node's driver holds no memory limits, and what to do about that; empty: it
    does.
    """
    offer = resources.offered(node, chosen)
    unusable = resources.unusable(node)
    specs = _specs(node, chosen)
    given = _mps(offer.resources, chosen.flags.mps_root, unusable)
    made = allocation_context.context(chosen, node, specs, mps=given)
    if made.blocked:
        uuids = (device.uuid for resource in offer.resources for device in resource.devices)
        unusable |= dict.fromkeys(uuids, made.blocked)
    known = KnownNode(
        _Unlinked(), chosen, allocation_context.with_health(made, unusable), unhealthy=unusable
    )
    guard = chosen.own.guard.ends_processes
    bounds = {
        device.uuid: memory_bounds.bound(resource, device, driver=not unheld[0], guard=guard)
        for resource in offer.resources
        for device in resource.devices
    }
    return PluginOffer(
        resources={resource.name: resource for resource in offer.resources},
        answering=KubeletAnswers(known, lambda _: None),
        told=sharing_notes.sharing_notes(offer.resources, bounds, unheld),
        unusable=unusable,
        warnings=(*offer.warnings, *specs.warnings, *made.warnings, *_unseen(chosen)),
    )


def _specs(node: Node, chosen: Configuration) -> Specs:
    """Return what the plugin's CDI specs would describe; none is written."""
    if not set(chosen.flags.plugin.device_list_strategy) & set(CDI_STRATEGIES):
        return Specs()
    from gpuhook.device_plugin.allocate import plugin_specs  # with all that makes specs
    from gpuhook.vendors.nvidia.spec.generate_options import DEFAULT_HOOK_PATH, HOOKS

    hook = plugin_specs.Hook(HOOKS[0], chosen.flags.plugin.cdi_hook_path or DEFAULT_HOOK_PATH)
    return plugin_specs.update(node, (), hook, directory=None)


def _mps(
    offered: tuple[Resource, ...], root: str, unusable: dict[str, str]
) -> dict[str, Allocation]:
    """Return what containers get of an MPS daemon, and add the devices that can have none."""
    given = {}
    for resource in offered:
        try:
            plan = mps.plan(resource, root)
        except GpuhookError as error:
            unusable.update((device.uuid, error.message) for device in resource.devices)
            continue
        if plan is not None:
            given[resource.name] = Allocation(plan.envs, plan.mounts)
    return given


def _unseen(chosen: Configuration) -> list[str]:
    flags = chosen.flags
    extras = {
        "gdrcopyEnabled": flags.gdrcopy_enabled,
        "gdsEnabled": flags.gds_enabled,
        "mofedEnabled": flags.mofed_enabled,
        "imex.channelIDs": bool(chosen.imex.channel_ids),
    }
    wanted = [name for name, is_on in extras.items() if is_on]
    return [f"{', '.join(wanted)}: what these add is not shown"] if wanted else []
