# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's answers to the questions of commands and services (vendors/interfaces)."""

from __future__ import annotations

from typing import Any

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.hot import vocabulary as nvidia_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpuhook.host.worker import NoAnswerError
    from gpuhook.vendors.device_isolation import Isolation, SharedUse
    from gpuhook.vendors.gpu_summary import GpuSummary
    from gpuhook.vendors.interfaces.memory_interface import FindLibrary
    from gpuhook.vendors.interfaces.usage_interface import ContainerTraces
    from gpuhook.vendors.limit_device import LimitDevice, LimitSupport
    from gpuhook.vendors.spec_call import SpecCall, SpecOptions
    from gpuhook.vendors.spec_case import SpecCase, SpecLook
    from gpuhook.vendors.support_facts import SupportFacts
    from gpuhook.vendors.usage_device import UsageDevice, UsageLook
    from gpuhook.vendors.vendor_checks import VendorChecks
    from gpuhook.vendors.vendor_device import ComputeShare, NamedDevices, NamingRules
    from gpuhook.vendors.vendor_inventory import NodePlace, VendorInventory
    from gpuhook.vendors.vendor_labels import VendorLabels
    from gpuhook.vendors.vendor_part import (
        DeviceCheck,
        ExporterWords,
        VendorPart,
    )


class NvidiaVendor:
    """NVIDIA."""

    name = "nvidia"
    title = "NVIDIA"
    domain = nvidia_words.VENDOR
    vocabulary = nvidia_words.VOCABULARY
    exporter: ExporterWords | None = None
    unshared: Mapping[str, str] = {"computeMask": "NVIDIA's driver has no such variable"}

    def owns(self, inventory: object) -> bool:
        from gpuhook.vendors.nvidia.inventory.inventory import Node

        return isinstance(inventory, Node)

    def named_devices(self, inventory: Any, rules: NamingRules) -> NamedDevices:
        from gpuhook.vendors.nvidia.gpu import gpu_resources

        return gpu_resources.named_devices(inventory, rules)

    def unusable(self, inventory: Any) -> dict[str, str]:
        from gpuhook.vendors.nvidia.gpu import gpu_resources

        return gpu_resources.unusable(inventory)

    def plugin_part(self, host_root: str, dev_root: str | None) -> VendorPart | None:
        """Return None: the plugin queries NVML, whose sessions and events its services share."""
        del host_root, dev_root
        return None

    def with_lost(self, now: VendorPart | None, last: VendorPart) -> VendorPart:
        return last if now is None else now

    def dumped_part(self, name: str) -> VendorPart | None:
        """Return None, as plugin_part()."""
        del name
        return None

    def plugin_token(self, host_root: str) -> str:
        del host_root
        return ""

    def check_devices(
        self, part: VendorPart, host_root: str, dev_root: str | None
    ) -> dict[str, DeviceCheck]:
        """Return nothing: the driver reports faults by events."""
        del part, host_root, dev_root
        return {}

    def free_memory(self, part: VendorPart, uuid: str, host_root: str) -> int | None:
        """Return None: the plugin queries NVML."""
        del part, uuid, host_root
        return None

    def absence(self, host_root: str, inventory: str | None = None) -> str:
        """Return why a node has no NVIDIA GPUs, "" if it may have some."""
        from gpuhook.vendors.nvidia.hot import host_fingerprint

        if inventory is None:
            return host_fingerprint.absence(host_root)
        from gpuhook.vendors.nvidia.inventory import dump_file

        return "" if dump_file.load(inventory).gpus else host_fingerprint.NO_GPU

    def spec_maker(self) -> None:
        """Return None: a spec has the driver's files, too."""

    def summary(self, host_root: str, inventory: object | None) -> GpuSummary | None:  # noqa: ARG002
        """Return the GPUs of doctor's inventory."""
        from gpuhook.vendors.nvidia.gpu import nvidia_summary
        from gpuhook.vendors.nvidia.inventory.inventory import Node

        return nvidia_summary.summary(inventory) if isinstance(inventory, Node) else None

    def read_inventory(self, place: NodePlace) -> VendorInventory:
        """Return what the driver reports."""
        from gpuhook.vendors.nvidia import inventory_tables

        return inventory_tables.read(place)

    def dumped_inventory(self, document: dict[str, Any], file: str) -> VendorInventory | None:
        """Return what a document has at its top."""
        from gpuhook.vendors.nvidia import inventory_tables

        return inventory_tables.of_document(document, file)

    @property
    def traces(self) -> ContainerTraces:
        """NVIDIA's nodes have their own names."""
        from gpuhook.vendors.nvidia.spec import injection_traces

        return injection_traces

    def opened_usage(self, library: FindLibrary) -> AbstractContextManager[Callable[[], UsageLook]]:
        """Call the driver through NVML."""
        from gpuhook.vendors.nvidia.usage import nvidia_usage

        return nvidia_usage.opened(library)

    def known_devices(self) -> tuple[UsageDevice, ...]:
        """Return the devices that generate-cdi recorded."""
        from gpuhook.vendors.nvidia.usage import nvidia_usage

        return nvidia_usage.recorded_devices()

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

    def process_memory(self, host_root: str) -> Mapping[str, Mapping[int, int | None]]:  # noqa: ARG002
        """Return nothing: NVML is asked."""
        return {}

    def limit_support(self, library: FindLibrary, host_root: str) -> LimitSupport:  # noqa: ARG002
        """Return whether the driver has the call, and the cgroups what it needs."""
        from gpuhook.vendors.limit_device import LimitSupport
        from gpuhook.vendors.nvidia.driver import driver_support

        try:
            return driver_support.driver_support(library())
        except GpuhookError as error:
            return LimitSupport(reason=error.message, remedy=error.hint, is_present=False)

    label_kinds: tuple[str, ...] = ()

    default_label_kinds: tuple[str, ...] = ()

    def labels(
        self, part: VendorPart, kinds: Collection[str], host_root: str | None
    ) -> VendorLabels:
        """Return none: NVIDIA's labels describe the offer (device_plugin/labels/node_labels.py)."""
        from gpuhook.vendors.vendor_labels import VendorLabels

        del part, kinds, host_root
        return VendorLabels()

    def usage(self, part: VendorPart, host_root: str) -> tuple[UsageDevice, ...]:
        """Return none: the plugin queries NVML."""
        del part, host_root
        return ()

    def support_facts(self) -> SupportFacts:
        """Return nothing: the bundle's own list has NVIDIA's files."""
        from gpuhook.vendors.support_facts import SupportFacts as Facts

        return Facts()

    def support_inventory(self, host_root: str, dev_root: str) -> dict[str, Any] | None:  # noqa: ARG002
        """Return None: the bundle has the answers of NVML."""
        return None

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
