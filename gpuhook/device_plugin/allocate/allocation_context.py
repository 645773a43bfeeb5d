# SPDX-License-Identifier: Apache-2.0
"""The facts for answers to Allocate, made once for each snapshot of the node."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gpuhook.device_plugin.allocate.container_allocation import (
    AllocatedMount,
    Allocation,
    DeviceSpec,
)
from gpuhook.device_plugin.vendor_flags import vendor_flags
from gpuhook.vendors.catalogue import vendor_of_resource, vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.allocate.auxiliary_devices import AuxiliaryDevice
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.gpuhook_section import Interposer
    from gpuhook.device_plugin.offer.offered_devices import Resource
    from gpuhook.request.parse import Vocabulary
    from gpuhook.vendors.vendor_part import VendorPart

CDI_STRATEGIES = ("cdi-annotations", "cdi-cri")


@dataclass(frozen=True, slots=True)
class Specs:
    """The qualified names in the node's CDI specs, or the `trouble` why there are none.

    `written` are the changed files.
    """

    names: frozenset[str] = frozenset()
    trouble: str = ""
    written: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """How this node passes devices to containers. Host paths are paths on the host.

    `blocked` is the reason why no strategy works, or "". `unhealthy` has reasons by device
    UUID, `mps` the allocation for each resource that MPS shares.
    """

    strategies: tuple[str, ...] = ("envvar",)  # the working ones, in the order of LIST_STRATEGIES
    id_strategy: str = "uuid"
    annotation_prefix: str = "cdi.k8s.io/"
    cdi_names: frozenset[str] = frozenset()  # qualified names in the plugin's specs
    pass_device_specs: bool = False
    control_nodes: tuple[DeviceSpec, ...] = ()
    extras: tuple[AuxiliaryDevice, ...] = ()
    host_files: Allocation = field(default_factory=Allocation)  # of that strategy, without devices
    mps: Mapping[str, Allocation] = field(default_factory=dict)  # by resource name
    interposers: tuple[Interposer, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)  # interposer, missing path
    unhealthy: Mapping[str, str] = field(default_factory=dict)
    blocked: str = ""
    domain: str = field(default_factory=lambda: vendors()[0].domain)
    words: Vocabulary = field(default_factory=lambda: vendors()[0].vocabulary)
    of_domains: Mapping[str, Context] = field(default_factory=dict)  # of the node's vendors
    warnings: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether every configured strategy works."""
        return not (self.warnings or any(one.blocked for one in self.of_domains.values()))

    def of_resource(self, resource: Resource) -> Context:
        """Return the context for the devices of a resource's vendor."""
        own = self.of_domains.get(resource.domain)
        return self if own is None else replace(own, unhealthy=self.unhealthy)


def context(
    configuration: Configuration,
    part: VendorPart,
    specs: Specs,
    extras: tuple[AuxiliaryDevice, ...] = (),
    mps: Mapping[str, Allocation] | None = None,
    *,
    missing: Mapping[str, str] | None = None,
) -> Context:
    """Return the context for the devices of a vendor's part.

    A strategy that lacks something on the node is omitted with a warning; if none is left,
    `blocked` is the reason. `missing` has interposers, and the path that the host lacks.
    """
    flags, vendor = configuration.flags.plugin, vendor_of_resource(part.domain)
    found = vendor.driver_mounts(part, configuration.own.host_files_path)
    mounts = tuple(AllocatedMount(place, path) for path, place in found.mounts)
    files = Allocation(dict(found.env), mounts)
    troubles = dict.fromkeys(CDI_STRATEGIES, specs.trouble)
    troubles["host-files"] = "" if files.mounts else part.files_trouble or "the driver has no files"
    configured = vendor_flags(configuration.flags, vendor.name).list_strategies
    strategies = tuple(s for s in configured if not troubles.get(s))
    lost = [f"{s}: {troubles[s]}" for s in configured if troubles.get(s)]
    known = {device.path: device.host_path for device in part.device_nodes}
    return Context(
        strategies=strategies,
        id_strategy=flags.device_id_strategy,
        annotation_prefix=flags.cdi_annotation_prefix,
        cdi_names=specs.names,
        pass_device_specs=flags.pass_device_specs,
        control_nodes=tuple(DeviceSpec(one, known.get(one, one)) for one in part.control_nodes),
        extras=extras,
        host_files=files if "host-files" in strategies else Allocation(),
        mps=mps or {},
        interposers=configuration.own.interposers,
        missing=missing or {},
        blocked="" if strategies else "; ".join(lost),
        domain=part.domain,
        words=vendor.vocabulary,
        warnings=tuple(f"the strategy {line}" for line in lost) if strategies else (),
    )
