# SPDX-License-Identifier: Apache-2.0
"""AMD's answers to the questions of commands and services (vendors/interfaces)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from gpuhook.vendors.amd.hot import amd_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpuhook.errors import GpuhookError
    from gpuhook.host.worker import NoAnswerError
    from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
    from gpuhook.vendors.device_isolation import Isolation, SharedUse
    from gpuhook.vendors.gpu_summary import GpuSummary
    from gpuhook.vendors.interfaces.memory_interface import FindLibrary
    from gpuhook.vendors.interfaces.usage_interface import ContainerTraces
    from gpuhook.vendors.limit_device import LimitDevice, LimitSupport
    from gpuhook.vendors.spec_call import SpecCall, SpecOptions
    from gpuhook.vendors.spec_case import SpecCase, SpecLook
    from gpuhook.vendors.spec_choices import DescribedDevices, SpecChoices
    from gpuhook.vendors.support_facts import SupportFacts
    from gpuhook.vendors.usage_device import UsageDevice, UsageLook
    from gpuhook.vendors.vendor_checks import VendorChecks
    from gpuhook.vendors.vendor_device import ComputeShare, NamedDevices, NamingRules
    from gpuhook.vendors.vendor_inventory import NodePlace, VendorInventory
    from gpuhook.vendors.vendor_labels import VendorLabels
    from gpuhook.vendors.vendor_part import DeviceCheck, ExporterWords, VendorPart

_EXPORTER = "/var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket"
_SLICES = "amdgpu has no setting for it"


class AmdVendor:
    """AMD."""

    name = "amd"
    title = "AMD"
    domain = amd_words.VENDOR
    vocabulary = amd_words.VOCABULARY
    unshared: Mapping[str, str] = {
        "mps": "AMD GPUs have no MPS",
        "timeSlice": _SLICES,
        "computeMode": _SLICES,
    }

    @property
    def exporter(self) -> ExporterWords | None:
        from gpuhook.vendors.vendor_part import ExporterWords

        packages = ("metricssvc", "gpumetricssvc")
        return ExporterWords(_EXPORTER, tuple(f"/{name}.MetricsService/List" for name in packages))

    def owns(self, inventory: object) -> bool:
        from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode

        return isinstance(inventory, AmdNode)

    def named_devices(self, inventory: Any, rules: NamingRules) -> NamedDevices:
        from gpuhook.vendors.amd.plugin import amd_resources

        return amd_resources.named_devices(inventory, rules)

    def unusable(self, inventory: Any) -> dict[str, str]:
        from gpuhook.vendors.amd.plugin import amd_resources

        return amd_resources.unusable(inventory)

    def plugin_part(self, host_root: str, dev_root: str | None) -> VendorPart | None:
        from gpuhook.vendors.amd.plugin import amd_part

        return self._part(amd_part.inventory(host_root, dev_root or host_root))

    def with_lost(self, now: VendorPart | None, last: VendorPart) -> VendorPart:
        from gpuhook.vendors.amd.plugin import amd_part

        return amd_part.with_lost(now, last)

    def dumped_part(self, name: str) -> VendorPart | None:
        from gpuhook.vendors.amd.inventory import amd_dump

        return self._part(amd_dump.load(name))

    def _part(self, node: AmdNode) -> VendorPart | None:
        from gpuhook.vendors.amd.plugin import amd_part

        return amd_part.part(node) if node.gpus or node.driver is not None else None

    def plugin_token(self, host_root: str) -> str:
        from gpuhook.vendors.amd.hot import amd_token

        return amd_token.token(host_root)

    def check_devices(
        self, part: VendorPart, host_root: str, dev_root: str | None
    ) -> dict[str, DeviceCheck]:
        from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
        from gpuhook.vendors.amd.plugin import amd_health

        if not isinstance(part.inventory, AmdNode):
            return {}
        return amd_health.check_devices(part.inventory, host_root, dev_root)

    def free_memory(self, part: VendorPart, uuid: str, host_root: str) -> int | None:
        from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
        from gpuhook.vendors.amd.plugin import amd_health

        node = part.inventory
        return amd_health.free_memory(node, uuid, host_root) if isinstance(node, AmdNode) else None

    def absence(self, host_root: str, inventory: str | None = None) -> str:
        """Return why a node has no AMD GPUs, "" if it may have some."""
        from gpuhook.vendors.amd.spec import amd_node

        return amd_node.absence(host_root, inventory)

    def spec_maker(self) -> Callable[[SpecChoices], DescribedDevices]:
        """Return what makes a CDI spec of device nodes."""
        from gpuhook.vendors.amd.spec import amd_node

        return amd_node.describe

    def summary(self, host_root: str, inventory: object | None) -> GpuSummary | None:  # noqa: ARG002
        """Return the GPUs of sysfs."""
        from gpuhook.vendors.amd.spec import amd_node

        return amd_node.summary(host_root)

    def read_inventory(self, place: NodePlace) -> VendorInventory | None:
        """Return what the driver reports in sysfs."""
        from gpuhook.vendors.amd.inventory import amd_tables

        return amd_tables.read(place)

    def dumped_inventory(self, document: dict[str, Any], file: str) -> VendorInventory | None:
        """Return the part `amd` of a document."""
        from gpuhook.vendors.amd.inventory import amd_tables

        return amd_tables.of_document(document, file)

    @property
    def traces(self) -> ContainerTraces:
        """AMD shares the names of DRM nodes with other drivers."""
        from gpuhook.vendors.amd.usage import amd_traces

        return amd_traces

    def opened_usage(
        self,
        library: FindLibrary,  # noqa: ARG002 # AMD's usage needs none
    ) -> AbstractContextManager[Callable[[], UsageLook]]:
        """Read sysfs, KFD and procfs."""
        from gpuhook.vendors.amd.usage import amd_reading

        return amd_reading.opened()

    def known_devices(self) -> tuple[UsageDevice, ...]:
        """Return the devices of sysfs."""
        from gpuhook.vendors.amd.usage import amd_reading

        return amd_reading.known_devices()

    def file_devices(self, name: str) -> tuple[UsageDevice, ...]:
        """Return the devices of the key `amd`."""
        from gpuhook.vendors.amd.usage import amd_reading

        return amd_reading.file_devices(name)

    def noted_nodes(self) -> dict[str, str]:
        """Return nothing: sysfs has the devices."""
        return {}

    def compute_mask(self, shares: Sequence[ComputeShare]) -> dict[str, str]:
        """Return HSA_CU_MASK, unless a share is too small or the order of the GPUs matters."""
        from gpuhook.vendors.amd.system import cu_mask

        return cu_mask.variables(shares)

    def limit_devices(self, library: FindLibrary, host_root: str) -> list[LimitDevice]:  # noqa: ARG002
        """Return the GPUs and partitions in sysfs."""
        from gpuhook.vendors.amd.system import vram_support

        return vram_support.limit_devices(host_root)

    def process_memory(self, host_root: str) -> Mapping[str, Mapping[int, int | None]]:
        """Return what KFD and the fdinfo of DRM clients show."""
        from gpuhook.vendors.amd.inventory import sysfs_inventory
        from gpuhook.vendors.amd.usage import amd_processes

        return amd_processes.processes(host_root, sysfs_inventory.read(host_root, host_root))

    def limit_support(self, library: FindLibrary, host_root: str) -> LimitSupport:  # noqa: ARG002
        """Return whether the kernel's controller dmem limits the memory of this node's GPUs."""
        from gpuhook.vendors.amd.system import vram_support

        return vram_support.limit_support(host_root)

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

    def labels(
        self, part: VendorPart, kinds: Collection[str], host_root: str | None
    ) -> VendorLabels:
        """Return the labels of AMD's node labeller."""
        from gpuhook.vendors.amd.labels import amd_labels, asic_family, firmware_versions

        node = amd_labels.usable(_node(part), part.lost, part.trouble)
        if host_root is None:
            unread = amd_labels.FIRMWARE if "firmware" in kinds else ""
            return replace(amd_labels.labels(node, kinds), unread=unread)
        root = host_root.rstrip("/")
        if "family" in kinds:
            node = asic_family.with_families(node, root)
        firmware = []
        if "firmware" in kinds:
            addresses = [gpu.pci_address for gpu in node.gpus]
            firmware = [firmware_versions.firmware_versions(root, one) for one in addresses]
        return amd_labels.labels(node, kinds, firmware)

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

    def isolation(self, use: SharedUse) -> Isolation:
        """Return the sentences of a GPU, or of a part of one."""
        from gpuhook.vendors.amd.usage import amd_isolation

        return amd_isolation.isolation_of(use)

    def no_answer(self, error: NoAnswerError, seconds: float) -> GpuhookError:
        """Return GH2561 with the file that does not answer, or GH2560."""
        from gpuhook.vendors.amd.inventory import patient_inventory

        return patient_inventory.unanswered(error, seconds)

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
