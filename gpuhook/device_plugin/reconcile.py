# SPDX-License-Identifier: Apache-2.0
"""Computes the offer from the configuration and a snapshot of the node, and prepares it.

It writes CDI specs, starts MPS daemons and sets policies of GPUs, so it blocks: the plugin calls it
in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.device_plugin.allocate import allocation_context, auxiliary_devices, interposers
from gpuhook.device_plugin.allocate.allocation_context import Context, Specs
from gpuhook.device_plugin.gpu_policies.policy_service import PolicyState
from gpuhook.device_plugin.mps.mps_service import MpsState
from gpuhook.device_plugin.offer import preferred_allocation, resources
from gpuhook.device_plugin.offer.resources import Offer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.device_plugin.gpu_policies.policy_service import PolicyService
    from gpuhook.device_plugin.mps.mps_service import MpsService
    from gpuhook.device_plugin.node_snapshot import NodeSnapshot
    from gpuhook.device_plugin.offer.offered_devices import Resource


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """The offer of one turn. `unusable` has the reasons of unusable devices, by UUID.

    `written` are the paths of new or changed CDI specs. `unenforced` is why the driver does not
    enforce memory limits, and the remedy.
    """

    configuration: Configuration
    offer: Offer = field(default_factory=lambda: Offer((), ()))
    context: Context = field(default_factory=Context)
    mps: MpsState = field(default_factory=MpsState)
    policies: PolicyState = field(default_factory=PolicyState)
    unusable: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    unenforced: tuple[str, str] = ("", "")


def reconcile(
    launch: Launch,
    configuration: Configuration,
    snapshot: NodeSnapshot,
    mps_service: MpsService,
    policy_service: PolicyService,
) -> TurnOutcome:
    """Return the node's offer. Raises GpuhookError if the configuration does not fit the node."""
    offer = resources.offered(snapshot.node, configuration)
    extras = auxiliary_devices.find(configuration, snapshot.places)
    specs = _update_specs(launch, configuration, snapshot, extras)
    policy_service.restore(offer.resources, snapshot)
    mps = mps_service.update(offer.resources, configuration.flags.mps_root, snapshot)
    policies = policy_service.update(offer.resources, snapshot)
    missing = {}
    if not snapshot.is_dump:
        own = configuration.own.interposers
        missing = interposers.missing(offer.resources, own, snapshot.places)
    context = allocation_context.context(
        configuration, snapshot.node, specs, extras, mps.given, missing=missing
    )
    for resource in offer.resources:
        preferred_allocation.prepare(resource, snapshot.topology)
    unusable = resources.unusable(snapshot.node) | mps.unready
    if context.blocked:
        units = (unit for resource in offer.resources for unit in resource.units)
        unusable |= {unit.device.uuid: context.blocked for unit in units}
    losses = {gpu.loss for gpu in snapshot.node.gpus}  # the health service reports these
    of_node = (warning for warning in snapshot.node.warnings if warning not in losses)
    warnings = (*of_node, *offer.warnings, *specs.warnings, *context.warnings)
    unenforced = _missing_driver_limits(offer.resources, snapshot)
    return TurnOutcome(
        configuration, offer, context, mps, policies, unusable, warnings, specs.written, unenforced
    )


def _missing_driver_limits(
    offered: tuple[Resource, ...], snapshot: NodeSnapshot
) -> tuple[str, str]:
    """Return why the driver does not enforce the offered memory limits, and the remedy."""
    if not any(resource.memory for resource in offered):
        return "", ""
    if snapshot.is_dump:
        return "with an inventory file, no driver enforces limits", ""
    from gpuhook.vendors.nvidia.driver import driver_support

    support = driver_support.driver_support(snapshot.seen.driver.nvml)
    return support.reason, support.remedy


def _update_specs(
    launch: Launch,
    configuration: Configuration,
    snapshot: NodeSnapshot,
    extras: tuple[auxiliary_devices.AuxiliaryDevice, ...],
) -> Specs:
    """Write the CDI specs if a device list strategy uses them; of a dump, only describe them."""
    strategies = set(configuration.flags.plugin.device_list_strategy)
    if not strategies & set(allocation_context.CDI_STRATEGIES):
        return Specs()
    from gpuhook.device_plugin.allocate import plugin_specs  # imports all of spec generation

    hook = plugin_specs.hook(configuration.flags)
    directory = None if snapshot.is_dump else launch.cdi_directory
    return plugin_specs.update(
        snapshot.node, extras, hook, directory=directory, host_root=launch.host_root
    )
