# SPDX-License-Identifier: Apache-2.0
"""Computes the offer from the configuration and a snapshot of the node, and prepares it.

It writes CDI specs, starts MPS daemons and sets policies of GPUs, so it blocks: the plugin calls it
in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from gpuhook.device_plugin import driver_calls
from gpuhook.device_plugin.allocate import (
    allocation_context,
    auxiliary_devices,
    interposers,
    vendor_contexts,
)
from gpuhook.device_plugin.allocate.allocation_context import CDI_STRATEGIES, Context, Specs
from gpuhook.device_plugin.gpu_policies.policy_service import PolicyState
from gpuhook.device_plugin.mps.mps_service import MpsState
from gpuhook.device_plugin.offer import preferred_allocation, resources
from gpuhook.device_plugin.offer.resources import Offer
from gpuhook.errors import GpuhookError
from gpuhook.vendors.catalogue import vendor_of_resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.device_plugin.gpu_policies.policy_service import PolicyService
    from gpuhook.device_plugin.mps.mps_service import MpsService
    from gpuhook.device_plugin.node_snapshot import NodeSnapshot


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """The offer of one turn. `unusable` has the reasons of unusable devices, by UUID.

    `written` are the paths of new or changed CDI specs. `unenforced` is why the driver does not
    enforce memory limits, and the remedy, by the domain of the vendor.
    """

    configuration: Configuration
    offer: Offer = field(default_factory=lambda: Offer((), ()))
    context: Context = field(default_factory=Context)
    mps: MpsState = field(default_factory=MpsState)
    policies: PolicyState = field(default_factory=PolicyState)
    unusable: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    unenforced: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def reconcile(
    launch: Launch,
    configuration: Configuration,
    snapshot: NodeSnapshot,
    mps_service: MpsService,
    policy_service: PolicyService,
) -> TurnOutcome:
    """Return the node's offer. Raises GpuhookError if the configuration does not fit the node."""
    others = snapshot.inventories
    offer = resources.offered(snapshot.node, configuration, *others)
    domains = {part.domain for part in snapshot.parts}
    own = tuple(resource for resource in offer.resources if resource.domain not in domains)
    extras = auxiliary_devices.find(configuration, snapshot.places)
    specs = _update_specs(launch, configuration, snapshot, extras)
    policy_service.restore(own, snapshot)
    mps = mps_service.update(own, configuration.flags.mps_root, snapshot)
    policies = policy_service.update(own, snapshot)
    missing = {}
    if not snapshot.is_dump:
        known = configuration.own.interposers
        missing = interposers.missing(offer.resources, known, snapshot.places)
    context = allocation_context.context(
        configuration, snapshot.node, specs, extras, mps.given, missing=missing
    )
    directory = None if snapshot.is_dump else launch.cdi_directory
    context, written = vendor_contexts.with_parts(
        context, configuration, snapshot.parts, offer.resources, directory
    )
    for resource in offer.resources:
        part = snapshot.part(resource.domain)
        preferred_allocation.prepare(resource, snapshot.topology if part is None else part.links)
    unusable = resources.unusable(snapshot.node, *others) | mps.unready
    unusable |= vendor_contexts.lost_devices(offer.resources, snapshot.parts)
    unusable |= vendor_contexts.blocked_devices(offer.resources, context)
    losses = {gpu.loss for gpu in snapshot.node.gpus}  # the health service reports these
    of_node = (warning for warning in snapshot.node.warnings if warning not in losses)
    of_parts = (warning for part in snapshot.parts for warning in part.warnings)
    failures = (f"{failure}: its GPUs are not offered" for failure in snapshot.failures)
    warnings = (
        *of_node,
        *of_parts,
        *failures,
        *offer.warnings,
        *specs.warnings,
        *context.warnings,
    )
    unenforced = {
        resource.domain: _missing_driver_limits(resource.domain, launch, snapshot)
        for resource in offer.resources
        if resource.memory
    }
    written += specs.written
    return TurnOutcome(
        configuration, offer, context, mps, policies, unusable, warnings, written, unenforced
    )


def _missing_driver_limits(domain: str, launch: Launch, snapshot: NodeSnapshot) -> tuple[str, str]:
    """Return why the driver of a vendor does not enforce memory limits, and the remedy."""
    if snapshot.is_dump:
        return "with an inventory file, no driver enforces limits", ""
    library = snapshot.seen.driver.nvml or ""
    vendor = vendor_of_resource(domain)
    ask = partial(vendor.limit_support, lambda: library, launch.host_root)
    try:
        support = driver_calls.call_driver(vendor, "limits", ask)
    except GpuhookError as error:  # the driver does not answer
        return error.message, error.hint
    return support.reason, support.remedy


def _update_specs(
    launch: Launch,
    configuration: Configuration,
    snapshot: NodeSnapshot,
    extras: tuple[auxiliary_devices.AuxiliaryDevice, ...],
) -> Specs:
    """Write the CDI specs if a device list strategy uses them; of a dump, only describe them."""
    strategies = set(configuration.flags.plugin.device_list_strategy)
    is_without = bool(snapshot.parts) and not snapshot.node.gpus  # other vendors have all GPUs
    if is_without or not strategies & set(CDI_STRATEGIES):
        return Specs()
    from gpuhook.device_plugin.allocate import plugin_specs  # imports all of spec generation

    hook = plugin_specs.hook(configuration.flags)
    directory = None if snapshot.is_dump else launch.cdi_directory
    return plugin_specs.update(
        snapshot.node, extras, hook, directory=directory, host_root=launch.host_root
    )
