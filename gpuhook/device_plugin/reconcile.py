# SPDX-License-Identifier: Apache-2.0
"""From a configuration and a look at the node to what is offered and how it is handed over.

This writes the CDI specs, starts MPS daemons and sets policies of GPUs, so it blocks: the plugin
calls it in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.device_plugin import driver_limits
from gpuhook.device_plugin.allocate import allocation_context, auxiliary_devices, interposers
from gpuhook.device_plugin.allocate.allocation_context import Context, Specs
from gpuhook.device_plugin.offer import memory_bounds, preferred_allocation, resources
from gpuhook.device_plugin.offer.resources import Offer
from gpuhook.device_plugin.services.mps_service import MpsState
from gpuhook.device_plugin.services.policy_service import PolicyState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.device_plugin.node_snapshot import Look
    from gpuhook.device_plugin.offer.offered_devices import Resource
    from gpuhook.device_plugin.services.mps_service import MpsKeeping
    from gpuhook.device_plugin.services.policy_service import PolicyKeeping


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """What is on offer. `unusable` are the reasons of devices that cannot be given, by UUID.

    `written` are the CDI specs that are new or changed. `bounds` is who bounds the memory of those
    who share a device, by its UUID, and `unheld` why the driver does not, with what to do about it.
    """

    offer: Offer = field(default_factory=lambda: Offer((), ()))
    context: Context = field(default_factory=Context)
    mps: MpsState = field(default_factory=MpsState)
    policies: PolicyState = field(default_factory=PolicyState)
    unusable: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    bounds: dict[str, str] = field(default_factory=dict)
    unheld: tuple[str, str] = ("", "")


def worked_out(
    launch: Launch,
    configuration: Configuration,
    look: Look,
    keeping: MpsKeeping,
    policy_keeping: PolicyKeeping,
) -> TurnOutcome:
    """Return what the node offers. Raises GpuhookError where the two contradict each other."""
    offer = resources.offered(look.node, configuration)
    extras = auxiliary_devices.find(configuration, look.places)
    specs = _specs(launch, configuration, look, extras)
    policy_keeping.leave(offer.resources, look)
    mps = keeping.keep(offer.resources, configuration.flags.mps_root, look)
    policies = policy_keeping.keep(offer.resources, look)
    missing = {}
    if not look.is_dump:
        missing = interposers.missing(offer.resources, configuration.own.interposers, look.places)
    made = allocation_context.context(
        configuration, look.node, specs, extras, mps.given, missing=missing
    )
    for resource in offer.resources:
        preferred_allocation.prepare(resource, look.topology)
    unusable = resources.unusable(look.node) | mps.unready
    if made.blocked:
        units = (unit for resource in offer.resources for unit in resource.units)
        unusable |= {unit.device.uuid: made.blocked for unit in units}
    losses = {gpu.loss for gpu in look.node.gpus}  # which the book of their health tells of
    told = (warning for warning in look.node.warnings if warning not in losses)
    warnings = (*told, *offer.warnings, *specs.warnings, *made.warnings)
    unheld = _unheld(offer.resources, look)
    bounds = _bounds(offer.resources, configuration, driver=not unheld[0])
    return TurnOutcome(
        offer, made, mps, policies, unusable, warnings, specs.written, bounds, unheld
    )


def _unheld(offered: tuple[Resource, ...], look: Look) -> tuple[str, str]:
    """Return why the driver holds no limits; nobody asks where none are given."""
    if not any(resource.memory for resource in offered):
        return "", ""
    if look.is_dump:
        return "a node's description holds nobody", ""
    return driver_limits.reason(look.seen.driver.nvml)


def _bounds(
    offered: tuple[Resource, ...], configuration: Configuration, *, driver: bool
) -> dict[str, str]:
    guard = configuration.own.guard.ends_processes
    return {
        device.uuid: memory_bounds.bound(resource, device, driver=driver, guard=guard)
        for resource in offered
        for device in resource.devices
    }


def _specs(
    launch: Launch,
    configuration: Configuration,
    look: Look,
    extras: tuple[auxiliary_devices.AuxiliaryDevice, ...],
) -> Specs:
    """Write the CDI specs, if any strategy names devices by them; of a dump, only describe them."""
    if not set(configuration.flags.plugin.device_list_strategy) & set(
        allocation_context.CDI_STRATEGIES
    ):
        return Specs()
    from gpuhook.device_plugin.allocate import plugin_specs  # with all that makes specs

    hook = plugin_specs.hook(configuration.flags)
    directory = None if look.is_dump else launch.cdi_directory
    return plugin_specs.update(
        look.node, extras, hook, directory=directory, host_root=launch.host_root
    )
