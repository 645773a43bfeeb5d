# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's answers to the questions of commands and services (vendors/interfaces)."""

from __future__ import annotations

from typing import Any

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.hot import vocabulary as nvidia_words
from gpuhook.vendors.nvidia.nvidia_inventory_vendor import NvidiaInventoryVendor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpuhook.cdi.hot.container_edits import Spec
    from gpuhook.host.worker import NoAnswerError
    from gpuhook.vendors.interfaces.memory_interface import FindLibrary, ProcessReader
    from gpuhook.vendors.interfaces.request_interface import ContainerRequests
    from gpuhook.vendors.interfaces.usage_interface import ContainerTraces
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
    from gpuhook.vendors.usage.device_isolation import Isolation, SharedUse
    from gpuhook.vendors.usage.limit_device import LimitDevice, LimitSupport
    from gpuhook.vendors.usage.usage_device import UsageDevice, UsageLook
    from gpuhook.vendors.vendor_checks import VendorChecks


class NvidiaVendor(NvidiaInventoryVendor):
    """NVIDIA."""

    name = "nvidia"
    title = "NVIDIA"
    domain = nvidia_words.VENDOR
    vocabulary = nvidia_words.VOCABULARY
    capability_words = nvidia_words.CAPABILITIES
    parse_capabilities = staticmethod(nvidia_words.parse_capabilities)
    exporter: ExporterWords | None = None
    dra_driver = "gpu.nvidia.com"  # NVIDIA's name, for which claims and classes are written
    dra_config_version = "resource.nvidia.com/v1beta1"

    def dra_devices(self, part: VendorPart, host_root: str | None) -> DraDevices:
        from gpuhook.vendors.nvidia.plugin import nvidia_dra, nvidia_part

        return nvidia_dra.dra_devices(nvidia_part.own_part([part]).node, host_root)

    usual_resources = (
        r"nvidia\.com/(gpu|gpu\.shared|pgpu|mig-[1-7]g\.[0-9]{1,3}gb([.+][a-z0-9.]+)?(\.shared)?)"
    )
    unshared: Mapping[str, str] = {"computeMask": "NVIDIA's driver has no such variable"}

    def named_devices(self, inventory: Any, rules: NamingRules) -> NamedDevices:
        from gpuhook.vendors.nvidia.gpu import gpu_resources

        return gpu_resources.named_devices(inventory, rules)

    def unusable(self, inventory: Any) -> dict[str, str]:
        from gpuhook.vendors.nvidia.gpu import gpu_resources

        return gpu_resources.unusable(inventory)

    deadline: float | None = None  # NVML's start wakes every GPU, a few seconds for each

    def plugin_part(self, place: PluginPlace) -> VendorPart:
        """Return what NVML reports."""
        from gpuhook.vendors.nvidia.plugin import nvidia_part

        return nvidia_part.read(place)

    def plugin_token(self, host_root: str, last: VendorPart | None) -> str:
        """Return what /proc shows of the GPUs, and the driver's libcuda."""
        from gpuhook.vendors.nvidia.plugin import nvidia_part

        return nvidia_part.token(host_root, nvidia_part.own_part(filter(None, [last])).seen)

    def with_lost(self, now: VendorPart | None, last: VendorPart) -> VendorPart | None:
        from gpuhook.vendors.nvidia.plugin import nvidia_part

        if now is None:
            return None
        return nvidia_part.with_lost(nvidia_part.own_part([now]), nvidia_part.own_part([last]))

    def dumped_part(self, name: str) -> VendorPart | None:
        from gpuhook.vendors.nvidia.inventory import dump_file
        from gpuhook.vendors.nvidia.plugin import nvidia_part

        return nvidia_part.part(dump_file.load(name))

    def holds_nodes(self, root: str) -> bool:
        from gpuhook.vendors.nvidia import discover

        return discover.holds_nodes(root)

    auxiliary_classes: Collection[str] = ("gdrcopy", "gds", "mofed", "imex-channel")

    def driver_mounts(self, part: VendorPart, directory: str) -> DriverMounts:
        from gpuhook.vendors.nvidia.plugin import nvidia_part, plugin_mounts

        return plugin_mounts.plugin_mounts(nvidia_part.own_part([part]).node, directory)

    def driver_spec(
        self, part: VendorPart, hook: str | None, host_root: str
    ) -> tuple[Spec, tuple[str, ...]] | None:
        from gpuhook.vendors.nvidia.plugin import nvidia_part, plugin_spec

        return plugin_spec.plugin_spec(nvidia_part.own_part([part]).node, hook, host_root)

    def inventory_part(self, inventory: Any) -> VendorPart:
        from gpuhook.vendors.nvidia.plugin import nvidia_part

        return nvidia_part.part(inventory)

    def check_devices(
        self, part: VendorPart, host_root: str, dev_root: str | None
    ) -> dict[str, DeviceCheck]:
        """Return nothing: the driver reports faults by events."""
        del part, host_root, dev_root
        return {}

    def free_memory(self, part: VendorPart, uuid: str, host_root: str) -> int | None:
        from gpuhook.vendors.nvidia.plugin import nvidia_part, part_usage

        del host_root
        return part_usage.free_memory(nvidia_part.own_part([part]), uuid)

    def driver_roots(self, search_paths: tuple[str, ...]) -> tuple[str, ...]:
        """Return the roots with a libnvidia-ml.so.1."""
        from gpuhook.vendors.nvidia.driver import driver_locations

        return driver_locations.roots_with_driver(search_paths)

    def spec_maker(self) -> None:
        """Return None: a spec has the driver's files, too."""

    def summary(self, host_root: str, inventory: object | None) -> GpuSummary | None:  # noqa: ARG002
        """Return the GPUs of doctor's inventory."""
        from gpuhook.vendors.nvidia.gpu import nvidia_summary
        from gpuhook.vendors.nvidia.inventory.inventory import Node

        return nvidia_summary.summary(inventory) if isinstance(inventory, Node) else None

    @property
    def traces(self) -> ContainerTraces:
        """NVIDIA's nodes have their own names."""
        from gpuhook.vendors.nvidia.spec import injection_traces

        return injection_traces

    def opened_usage(self, library: FindLibrary) -> AbstractContextManager[Callable[[], UsageLook]]:
        """Call the driver through NVML."""
        from gpuhook.vendors.nvidia.usage import nvidia_usage

        return nvidia_usage.opened(library)

    def file_devices(self, name: str) -> tuple[UsageDevice, ...]:
        """Return the devices of the dump."""
        from gpuhook.vendors.nvidia.inventory import dump_file
        from gpuhook.vendors.nvidia.usage import nvidia_devices

        return nvidia_devices.of_node(dump_file.load(name))

    def noted_nodes(self) -> dict[str, str]:
        """Return the record of generate-cdi."""
        from gpuhook.vendors.nvidia.hot import node_json

        return node_json.uuids()

    def compute_mask(self, shares: Sequence[ComputeShare]) -> dict[str, str]:
        """Return nothing: MPS limits the threads of a client."""
        del shares
        return {}

    def limit_devices(self, library: FindLibrary, host_root: str) -> list[LimitDevice]:
        """Return the GPUs that NVML reports. Raises GH1200 to GH1206."""
        from gpuhook.vendors.nvidia.nvml import limited_gpus

        return limited_gpus.limit_devices(library(), host_root)

    def process_reader(self, part: VendorPart, host_root: str) -> ProcessReader | None:
        """Return what calls NVML, None without its library."""
        from gpuhook.vendors.nvidia.plugin import nvidia_part, part_usage

        del host_root
        own = nvidia_part.own_part([part])
        return part_usage.NvmlProcesses(own) if own.library else None

    def limit_support(self, library: FindLibrary, host_root: str) -> LimitSupport:  # noqa: ARG002
        """Return whether the driver has the call, and the cgroups what it needs."""
        from gpuhook.vendors.nvidia.driver import driver_support
        from gpuhook.vendors.usage.limit_device import LimitSupport

        try:
            return driver_support.driver_support(library())
        except GpuhookError as error:
            return LimitSupport(reason=error.message, remedy=error.hint, is_present=False)

    label_kinds: tuple[str, ...] = ()

    default_label_kinds: tuple[str, ...] = ()

    def labels(self, part: VendorPart, offer: LabelOffer, host_root: str | None) -> VendorLabels:
        """Return the labels of NVIDIA's GPU feature discovery."""
        from gpuhook.vendors.nvidia.labels import label_facts, nvidia_labels
        from gpuhook.vendors.nvidia.plugin import nvidia_part

        own, facts = nvidia_part.own_part([part]), label_facts.LabelFacts()
        if host_root is not None:
            facts = label_facts.facts(own.seen, host_root, offer.machine_file)
        return nvidia_labels.labels(own.node, offer, facts)

    usage_source = "nvml"

    def usage(self, part: VendorPart, host_root: str) -> tuple[UsageDevice, ...]:
        """Return what NVML reports."""
        from gpuhook.vendors.nvidia.plugin import nvidia_part, part_usage

        del host_root
        return part_usage.usage(nvidia_part.own_part([part]))

    def support_facts(self) -> SupportFacts:
        """Return nothing: the bundle's own list has NVIDIA's files."""
        from gpuhook.vendors.inventory.support_facts import SupportFacts as Facts

        return Facts()

    def support_inventory(self, host_root: str, dev_root: str) -> dict[str, Any] | None:  # noqa: ARG002
        """Return None: the bundle has the answers of NVML."""
        return None

    def is_device_id(self, name: str) -> bool:
        """Return whether a name is the UUID of a GPU or of a MIG instance."""
        return nvidia_words.is_uuid(name)

    def noted_turns(self) -> dict[str, dict[str, str]]:
        """Return what generate-cdi recorded."""
        from gpuhook.vendors.nvidia.hot import node_json

        return node_json.turns()

    def isolation(self, use: SharedUse) -> Isolation:
        """Return the sentences of a GPU, or of a part of one."""
        from gpuhook.vendors.nvidia.gpu import sharing_isolation

        return sharing_isolation.isolation_of(use)

    def no_answer(self, error: NoAnswerError, seconds: float) -> GpuhookError:
        """Return GH1256 to GH1258."""
        from gpuhook.vendors.nvidia.usage import nvidia_usage

        return nvidia_usage.no_answer(error, seconds)

    def doctor_checks(self) -> VendorChecks:
        """Return the checks of the driver, its device nodes and its GPUs."""
        from gpuhook.vendors.nvidia.doctor import nvidia_checks

        return nvidia_checks.VENDOR_CHECKS

    def driver_dump(self, place: NodePlace) -> dict[str, Any]:
        """Return the answers of NVML. Raises GH1200 to GH1210."""
        from gpuhook.vendors.nvidia.doctor import driver_dump

        return driver_dump.driver_dump(place)

    @property
    def requests(self) -> ContainerRequests:
        """Images request GPUs and require drivers, and containers get parts of the driver."""
        from gpuhook.vendors.nvidia.requests import nvidia_requests

        return nvidia_requests

    @property
    def own_options(self) -> frozenset[str]:
        """The options of the driver's files, of MIG instances and of Tegra."""
        from gpuhook.vendors.nvidia.spec import generate_options

        return generate_options.OWN_OPTIONS

    def spec_call(self, options: SpecOptions) -> SpecCall:
        """Return the call; its spec has the files of the driver."""
        from gpuhook.vendors.nvidia.generate import driver_spec

        return driver_spec.spec_call(options)

    def spec_cases(self, look: SpecLook) -> list[SpecCase]:
        """Return the cases, by the records of generate-cdi and the hooks of the specs."""
        from gpuhook.vendors.nvidia.generate import driver_refresh

        return driver_refresh.spec_cases(look)

    def forget_spec(self, path: str) -> None:
        from gpuhook.vendors.nvidia.spec import spec_records

        spec_records.forget(path)
