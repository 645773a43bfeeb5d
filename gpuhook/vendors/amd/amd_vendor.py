# SPDX-License-Identifier: Apache-2.0
"""AMD's answers to the questions of commands and services (vendors/interfaces)."""

from __future__ import annotations

import os
from typing import Any, cast

from gpuhook.vendors.amd.amd_inventory_vendor import AmdInventoryVendor
from gpuhook.vendors.amd.hot import amd_words
from gpuhook.vendors.amd.usage.amd_usage_vendor import AmdUsageVendor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gpuhook.errors import GpuhookError
    from gpuhook.host.worker import NoAnswerError
    from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
    from gpuhook.vendors.interfaces.request_interface import ContainerRequests
    from gpuhook.vendors.inventory.gpu_summary import GpuSummary
    from gpuhook.vendors.inventory.support_facts import SupportFacts
    from gpuhook.vendors.inventory.vendor_inventory import NodePlace
    from gpuhook.vendors.labels.vendor_labels import LabelOffer, VendorLabels
    from gpuhook.vendors.plugin.dra_device import DraDevices
    from gpuhook.vendors.plugin.plugin_place import PluginPlace
    from gpuhook.vendors.plugin.vendor_device import ComputeShare, NamedDevices, NamingRules
    from gpuhook.vendors.plugin.vendor_part import (
        DeviceCheck,
        DriverMounts,
        ExporterWords,
        VendorPart,
    )
    from gpuhook.vendors.spec.spec_call import SpecCall, SpecOptions
    from gpuhook.vendors.spec.spec_case import SpecCase, SpecLook
    from gpuhook.vendors.spec.spec_choices import DescribedDevices, SpecChoices
    from gpuhook.vendors.usage.usage_device import UsageDevice
    from gpuhook.vendors.vendor_checks import VendorChecks

_EXPORTER = "/var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket"
_SLICES = "amdgpu has no setting for it"


class AmdVendor(AmdInventoryVendor, AmdUsageVendor):
    """AMD."""

    name = "amd"
    title = "AMD"
    domain = amd_words.VENDOR
    vocabulary = amd_words.VOCABULARY
    capability_words: tuple[str, ...] = ()
    usual_resources = r"amd\.com/(gpu|gpumem|[sdtqc]px_nps[1248])(\.shared)?"
    unshared: Mapping[str, str] = {
        "mps": "AMD GPUs have no MPS",
        "timeSlice": _SLICES,
        "computeMode": _SLICES,
    }

    dra_driver = "gpu.amd.com"  # AMD's name
    dra_config_version = ""

    def dra_devices(self, part: VendorPart, host_root: str | None) -> DraDevices:
        from gpuhook.vendors.amd.plugin import amd_dra

        return amd_dra.dra_devices(_node(part), host_root)

    @property
    def exporter(self) -> ExporterWords | None:
        from gpuhook.vendors.plugin.vendor_part import ExporterWords

        packages = ("metricssvc", "gpumetricssvc")
        return ExporterWords(_EXPORTER, tuple(f"/{name}.MetricsService/List" for name in packages))

    def parse_capabilities(self, value: str | None) -> frozenset[str]:
        """Return nothing: the driver has no parts."""
        del value
        return frozenset()

    def named_devices(self, inventory: Any, rules: NamingRules) -> NamedDevices:
        from gpuhook.vendors.amd.plugin import amd_resources

        return amd_resources.named_devices(inventory, rules)

    def unusable(self, inventory: Any) -> dict[str, str]:
        from gpuhook.vendors.amd.plugin import amd_resources

        return amd_resources.unusable(inventory)

    deadline: float | None = 10.0  # a driver that resets a GPU may block readers of its files

    def plugin_part(self, place: PluginPlace) -> VendorPart | None:
        from gpuhook.vendors.amd.plugin import amd_part

        return amd_part.read(place.host_root, place.dev_root or place.host_root)

    def with_lost(self, now: VendorPart | None, last: VendorPart) -> VendorPart:
        from gpuhook.vendors.amd.plugin import amd_part

        return amd_part.with_lost(now, last)

    def dumped_part(self, name: str) -> VendorPart | None:
        from gpuhook.vendors.amd.plugin import amd_part

        return amd_part.dumped(name)

    def holds_nodes(self, root: str) -> bool:
        return os.path.exists(os.path.join(root, amd_words.KFD.lstrip("/")))

    def plugin_token(self, host_root: str, last: VendorPart | None) -> str:  # noqa: ARG002
        from gpuhook.vendors.amd.hot import amd_token

        return amd_token.token(host_root)

    auxiliary_classes: Collection[str] = ()

    def driver_mounts(self, part: VendorPart, directory: str) -> DriverMounts:
        """Return nothing: an image has its own user space."""
        from gpuhook.vendors.plugin.vendor_part import DriverMounts

        del part, directory
        return DriverMounts()

    def driver_spec(self, part: VendorPart, hook: str | None, host_root: str) -> None:
        """Return None, as driver_mounts()."""

    def inventory_part(self, inventory: Any) -> VendorPart:
        from gpuhook.vendors.amd.plugin import amd_part

        return amd_part.part(inventory)

    def check_devices(
        self, part: VendorPart, host_root: str, dev_root: str | None
    ) -> dict[str, DeviceCheck]:
        from gpuhook.vendors.amd.plugin import amd_health

        return amd_health.check_devices(_node(part), host_root, dev_root)

    def free_memory(self, part: VendorPart, uuid: str, host_root: str) -> int | None:
        from gpuhook.vendors.amd.plugin import amd_health

        return amd_health.free_memory(_node(part), uuid, host_root)

    def driver_roots(self, search_paths: tuple[str, ...]) -> tuple[str, ...]:
        """Return (): the driver is in the kernel, and ROCm is in the images."""
        del search_paths
        return ()

    def spec_maker(self) -> Callable[[SpecChoices], DescribedDevices]:
        """Return what makes a CDI spec of device nodes."""
        from gpuhook.vendors.amd.spec import amd_node

        return amd_node.describe

    def summary(self, host_root: str, inventory: object | None) -> GpuSummary | None:  # noqa: ARG002
        """Return the GPUs of sysfs."""
        from gpuhook.vendors.amd.spec import amd_node

        return amd_node.summary(host_root)

    def compute_mask(self, shares: Sequence[ComputeShare]) -> dict[str, str]:
        """Return HSA_CU_MASK, unless a share is too small or the order of the GPUs matters."""
        from gpuhook.vendors.amd.system import cu_mask

        return cu_mask.variables(shares)

    @property
    def label_kinds(self) -> tuple[str, ...]:
        """The options of AMD's node labeller."""
        from gpuhook.vendors.amd.labels import amd_labels

        return amd_labels.KINDS

    @property
    def default_label_kinds(self) -> tuple[str, ...]:
        """The options that AMD's operator sets."""
        from gpuhook.vendors.amd.labels import amd_labels

        return amd_labels.DEFAULT_KINDS

    def labels(self, part: VendorPart, offer: LabelOffer, host_root: str | None) -> VendorLabels:
        """Return the labels of AMD's node labeller, and of the sharing of the devices."""
        from gpuhook.vendors.amd.labels import part_labels

        return part_labels.part_labels(part, offer, host_root)

    usage_source = "amd"

    def usage(self, part: VendorPart, host_root: str) -> tuple[UsageDevice, ...]:
        """Return the usage from sysfs, KFD and procfs."""
        from gpuhook.vendors.amd.usage import amd_usage

        return amd_usage.usage(host_root, _node(part))

    def support_facts(self) -> SupportFacts:
        """Return the files and the messages of the kernel that a support bundle has."""
        from gpuhook.vendors.amd.system import amd_support

        return amd_support.support_facts()

    def support_inventory(self, host_root: str, dev_root: str) -> dict[str, Any] | None:
        """Return the inventory without serial numbers, None without a driver."""
        from gpuhook.vendors.amd.system import amd_support

        return amd_support.support_inventory(host_root, dev_root)

    @property
    def requests(self) -> ContainerRequests:
        """Containers request device nodes alone."""
        from gpuhook.vendors.amd.spec import amd_requests

        return amd_requests

    def no_answer(self, error: NoAnswerError, seconds: float) -> GpuhookError:
        """Return GH2561 with the file that does not answer, or GH2560."""
        from gpuhook.vendors.amd.inventory import inventory_worker

        return inventory_worker.unanswered(error, seconds)

    def doctor_checks(self) -> VendorChecks:
        """Return the checks of amdgpu, KFD, the GPUs and their CDI specs."""
        from gpuhook.vendors.amd.doctor import amd_checks

        return amd_checks.VENDOR_CHECKS

    def driver_dump(self, place: NodePlace) -> None:
        """Return None: no library is asked."""

    @property
    def own_options(self) -> frozenset[str]:
        """The version of CDI, which decides who may open the device nodes."""
        from gpuhook.vendors.amd.spec import amd_spec_call

        return amd_spec_call.OWN_OPTIONS

    def spec_call(self, options: SpecOptions) -> SpecCall:
        """Return the call; its spec has device nodes alone."""
        from gpuhook.vendors.amd.spec import amd_spec_call

        return amd_spec_call.spec_call(options)

    def spec_cases(self, look: SpecLook) -> list[SpecCase]:
        """Return the cases, by the options in the specs and by new specs."""
        from gpuhook.vendors.amd.spec import amd_refresh

        return amd_refresh.spec_cases(look)

    def forget_spec(self, path: str) -> None:
        """Do nothing: the options are in the spec."""


def _node(part: VendorPart) -> AmdNode:
    """Return the inventory of one of AMD's parts."""
    return cast("AmdNode", part.inventory)
