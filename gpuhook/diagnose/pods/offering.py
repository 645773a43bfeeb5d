# SPDX-License-Identifier: Apache-2.0
"""What gpuhook's device plugin offers on a node, by the node's facts and a configuration.

The plugin's own code works it out; nothing is started, written or asked of a driver. Without
asking, nobody knows the links of GPUs, the extras (GDRCopy, GDS, MOFED, IMEX) and if MPS would run.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.errors import GpuhookError
from gpuhook.kubernetes.allocation import context as allocation_context
from gpuhook.kubernetes.allocation.allocation import Allocation
from gpuhook.kubernetes.allocation.context import CDI_STRATEGIES, Specs
from gpuhook.kubernetes.answering import Answering, Known
from gpuhook.kubernetes.config.source import ConfigSource, load
from gpuhook.kubernetes.mps import plan as mps
from gpuhook.kubernetes.offer import memory_bounds, resources, sharing_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.kubernetes.config.configuration import Configuration
    from gpuhook.kubernetes.offer.devices import Resource
    from gpuhook.kubernetes.offer.sharing_words import Told
    from gpuhook.vendors.nvidia.inventory import Node


@dataclass(frozen=True, slots=True)
class Offering:
    """The resources on offer by name, who answers for them, and what is isolated in each.

    `unusable` has the reasons of devices that the kubelet is told are unhealthy, by UUID.
    """

    resources: Mapping[str, Resource]
    answering: Answering
    told: tuple[Told, ...]
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


def offering(node: Node, chosen: Configuration, unheld: tuple[str, str] = ("", "")) -> Offering:
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
    known = Known(
        _Unlinked(), chosen, allocation_context.with_health(made, unusable), unhealthy=unusable
    )
    guard = chosen.own.guard.ends_processes
    bounds = {
        device.uuid: memory_bounds.bound(resource, device, driver=not unheld[0], guard=guard)
        for resource in offer.resources
        for device in resource.devices
    }
    return Offering(
        resources={resource.name: resource for resource in offer.resources},
        answering=Answering(known, lambda _: None),
        told=sharing_words.of(offer.resources, bounds, unheld),
        unusable=unusable,
        warnings=(*offer.warnings, *specs.warnings, *made.warnings, *_unseen(chosen)),
    )


def _specs(node: Node, chosen: Configuration) -> Specs:
    """Return what the plugin's CDI specs would describe; none is written."""
    if not set(chosen.flags.plugin.device_list_strategy) & set(CDI_STRATEGIES):
        return Specs()
    from gpuhook.kubernetes.allocation import spec_upkeep  # with all that makes specs
    from gpuhook.vendors.nvidia.choices import DEFAULT_HOOK_PATH, HOOKS

    hook = spec_upkeep.Hook(HOOKS[0], chosen.flags.plugin.cdi_hook_path or DEFAULT_HOOK_PATH)
    return spec_upkeep.update(node, (), hook, directory=None)


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
