# SPDX-License-Identifier: Apache-2.0
"""Computes the offer from the configuration and a snapshot of the node, and prepares it.

It writes CDI specs, starts MPS daemons and sets policies of GPUs, so it blocks: the plugin calls it
in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from gpuhook.device_plugin import driver_calls
from gpuhook.device_plugin.allocate import auxiliary_devices, interposers, vendor_contexts
from gpuhook.device_plugin.allocate.allocation_context import Context, Specs
from gpuhook.device_plugin.allocate.vendor_contexts import Additions
from gpuhook.device_plugin.gpu_policies.policy_service import PolicyState
from gpuhook.device_plugin.mps.mps_service import MpsState
from gpuhook.device_plugin.offer import preferred_allocation, resources
from gpuhook.device_plugin.offer.resources import Offer
from gpuhook.errors import GpuhookError
from gpuhook.vendors.catalogue import vendor_of_resource
from gpuhook.vendors.plugin.vendor_part import PairScores

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuhook.device_plugin.allocate.auxiliary_devices import AuxiliaryDevice
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.device_plugin.gpu_policies.policy_service import PolicyService
    from gpuhook.device_plugin.mps.mps_service import MpsService
    from gpuhook.device_plugin.node_snapshot import NodeSnapshot
    from gpuhook.device_plugin.offer.offered_devices import Device
    from gpuhook.vendors.plugin.vendor_part import VendorPart


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
    if not snapshot.parts:  # before the first one
        return TurnOutcome(configuration)
    first, *others = snapshot.inventories
    offer = resources.offered(first, configuration, *others)
    auxiliary = auxiliary_devices.find(configuration, snapshot.places)
    specs = _update_specs(launch, configuration, snapshot, offer, auxiliary)
    policy_service.restore(offer.resources, snapshot)
    mps = mps_service.update(offer.resources, configuration.flags.mps_root, snapshot)
    policies = policy_service.update(offer.resources, snapshot)
    missing = {}
    if not snapshot.is_dump:
        known = configuration.own.interposers
        missing = interposers.missing(offer.resources, known, snapshot.places)
    added = Additions(auxiliary, mps.given, missing)
    context = vendor_contexts.with_parts(configuration, snapshot.parts, specs, added)
    for resource in offer.resources:
        part = snapshot.part(resource.domain)
        preferred_allocation.prepare(resource, PairScores() if part is None else part.links)
    unusable = resources.unusable(first, *others) | mps.unready
    unusable |= vendor_contexts.lost_devices(offer.resources, snapshot.parts)
    unusable |= vendor_contexts.blocked_devices(offer.resources, context)
    of_parts = (warning for part in snapshot.parts for warning in part.warnings)
    failures = (f"{failure}: its GPUs are not offered" for failure in snapshot.failures)
    of_specs = (warning for one in specs.values() for warning in one.warnings)
    warnings = (*of_parts, *failures, *offer.warnings, *of_specs, *context.warnings)
    unenforced = {
        resource.domain: missing_driver_limits(resource.domain, launch, snapshot)
        for resource in offer.resources
        if resource.memory
    }
    written = tuple(path for one in specs.values() for path in one.written)
    return TurnOutcome(
        configuration, offer, context, mps, policies, unusable, warnings, written, unenforced
    )


def missing_driver_limits(domain: str, launch: Launch, snapshot: NodeSnapshot) -> tuple[str, str]:
    """Return why the driver of a vendor does not enforce memory limits, and the remedy."""
    if snapshot.is_dump:
        return "with an inventory file, no driver enforces limits", ""
    part = snapshot.part(domain)
    library = "" if part is None else part.library
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
    offer: Offer,
    auxiliary: tuple[AuxiliaryDevice, ...],
) -> dict[str, Specs]:
    """Write the CDI specs of the vendors, and return them by domain; of a dump, only describe them.

    The code of spec generation is loaded only if a device list strategy uses them.
    """

    def update(part: VendorPart, devices: Iterable[Device]) -> Specs:
        from gpuhook.device_plugin.allocate import plugin_specs

        return plugin_specs.update(
            part,
            devices,
            vendor_contexts.auxiliary_of(part, auxiliary),
            plugin_specs.hook(configuration.flags),
            directory=None if snapshot.is_dump else launch.cdi_directory,
            host_root=launch.host_root,
        )

    return vendor_contexts.updated_specs(configuration, snapshot.parts, offer.resources, update)
