# SPDX-License-Identifier: Apache-2.0
"""The answers of a vendor: VendorNode for a plan (request/plan.py), Vendor for the cold features.

For type checkers only: no program imports it. A vendor without capabilities, hooks or extra devices
returns empty answers. No method assumes driver files or UUIDs.
"""

from __future__ import annotations

from typing import Any, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import TypeAlias

    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.cdi.hot.registry import Registry
    from gpuhook.errors import GpuhookError
    from gpuhook.host.hot.settings import Settings
    from gpuhook.request.extra_requests import Extra
    from gpuhook.request.parse import Source, Vocabulary
    from gpuhook.vendors.gpu_summary import GpuSummary
    from gpuhook.vendors.limit_device import LimitDevice, LimitSupport
    from gpuhook.vendors.nvidia.hot.rootfs.hook_args import Jobs
    from gpuhook.vendors.spec_choices import DescribedDevices, SpecChoices
    from gpuhook.vendors.support_facts import SupportFacts
    from gpuhook.vendors.usage_device import UsageDevice, UsageLook
    from gpuhook.vendors.vendor_device import ComputeShare, NamedDevices, NamingRules
    from gpuhook.vendors.vendor_inventory import NodePlace, VendorInventory
    from gpuhook.vendors.vendor_labels import VendorLabels
    from gpuhook.vendors.vendor_part import (
        AllocationWords,
        DeviceCheck,
        ExporterWords,
        VendorPart,
    )

    HookJobs: TypeAlias = Jobs  # of gpuhook's own hook, in any vendor's spec
    FindLibrary: TypeAlias = Callable[[], str]


class VendorNode(Protocol):
    """A node with one vendor's devices."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The variables, paths and kinds of the vendor's requests."""

    @property
    def kind(self) -> str:
        """The CDI kind of a device whose name has none."""

    def serves(self, name: str) -> bool:
        """Return whether a name in an annotation, which may be of any vendor, is of this one."""

    def serves_resource(self, variable: str, value: str) -> bool:
        """Return whether an orchestrator's variable names devices of this vendor."""

    @property
    def is_here(self) -> bool:
        """Whether it is this machine, so that its /dev can be read."""

    @property
    def apart(self) -> tuple[str, ...]:
        """The devices that `all` does not include."""

    @property
    def capability_words(self) -> tuple[str, ...]:
        """All capabilities, () for a vendor without."""

    def registry(self) -> Registry:
        """Return the registry of the node's CDI specs."""

    def registry_for(self, names: Sequence[str]) -> Registry:
        """Return that registry with the node's current devices among `names`."""

    def alias(self, name: str) -> str | None:
        """Return the name in the node's specs of the device with another name, None if unknown."""

    def full_names(self, name: str) -> list[str]:
        """Return the full names of a short form, [] for another name."""

    def refusal(self, name: str, error: GpuhookError, source: Source | None) -> GpuhookError:
        """Return the fault to raise for a requested name in place of the registry's `error`."""

    def has_driver(self) -> bool:
        """Return whether the node has a driver loaded."""

    def is_node(self, path: str) -> bool:
        """Return whether a path is that of a device node of the vendor's driver."""

    def is_gpu_node(self, path: str) -> bool:
        """Return whether a path is the node of one device, not of all of them."""

    @property
    def control_nodes(self) -> tuple[str, ...]:
        """The device nodes of every container with devices, even if a spec has them per device."""

    def own_nodes(self, paths: Collection[str]) -> frozenset[str]:
        """Return which of a container's device nodes are of the vendor."""

    def nodes_by_device(self) -> dict[str, frozenset[str]]:
        """Return the paths of the own nodes of each device, by qualified name."""

    def covered(self, nodes: Collection[str]) -> frozenset[str]:
        """Return the names of the devices that have nodes, and all of them among `nodes`."""

    def has_nodes(self, spec: dict[str, Any]) -> bool:
        """Return whether a config.json has device nodes of the vendor."""

    def parse_capabilities(
        self,
        text: str | None,
        allowed: Sequence[str],
        default: Sequence[str],
        unknown: list[str] | None,
    ) -> frozenset[str]:
        """Return the capabilities in `text`; adds to `unknown`, or raises GH1020."""

    def filter_edits(
        self, compiled: Compiled, edits: ContainerEdits, capabilities: frozenset[str]
    ) -> ContainerEdits:
        """Return the part of a spec's or a device's edits that `capabilities` need."""

    def further_names(self, spec: dict[str, Any]) -> list[str]:
        """Return the devices that a container's other variables request."""

    def is_extra(self, name: str) -> bool:
        """Return whether a device's name is of a kind that comes in addition to the devices."""

    def extra_requests(self, spec: dict[str, Any], settings: Settings) -> list[Extra]:
        """Return the requests of a container in addition to its devices, judged by policy."""

    def take_jobs(
        self, edits: ContainerEdits, capabilities: frozenset[str]
    ) -> tuple[ContainerEdits, list[HookJobs]]:
        """Return `edits` without our hooks, and the jobs of these."""

    def require_fresh(self, job: HookJobs) -> None:
        """Raise GH1120 if the spec of a job describes another state of the host."""

    def require_current(self, spec: Compiled) -> None:
        """Raise GH1120 if a spec without hooks describes another state of the host."""

    def is_stale(self, spec: Compiled) -> bool:
        """Return whether a spec is gpuhook's and describes another state of the host."""

    def forget(self) -> None:
        """Drop cached specs after they were written again."""

    def requires(self, environment: Mapping[str, str]) -> bool:
        """Return whether variables may require something of the driver."""

    def judge_requirements(
        self, environment: Mapping[str, str], jobs: Sequence[HookJobs], nodes: Iterable[str]
    ) -> list[GpuhookError]:
        """Return warnings of requirements that cannot be judged; raises those that are not met."""


class ContainerTraces(Protocol):
    """The device nodes and variables of a vendor in a container, for inspection only.

    What a container gets comes from the node, never from a name.
    """

    @property
    def NODE_DIRECTORIES(self) -> tuple[str, ...]:  # noqa: N802 # of a module
        """The directories of the device nodes."""

    @property
    def VARIABLES(self) -> tuple[str, ...]:  # noqa: N802
        """How the variables start that the vendor's programs read."""

    @property
    def HAS_FILES(self) -> bool:  # noqa: N802
        """Whether containers get files of the driver."""

    @property
    def DEVICES_ENV(self) -> str:  # noqa: N802
        """The variable that requests devices."""

    @property
    def KIND(self) -> str:  # noqa: N802
        """The CDI kind of these devices."""

    @property
    def TOOLKIT_HOOKS(self) -> Mapping[str, str]:  # noqa: N802
        """The programs of the hooks of the vendor's runtime, and its name in comparisons."""

    @property
    def SPEC_INJECTOR(self) -> str:  # noqa: N802
        """The name in comparisons of an engine with a CDI spec of the vendor's tool.

        It is "" if such a spec is recognised by its edits, and not by its device nodes.
        """

    def known_difference(self, by: str, what: str) -> str:
        """Return why a difference of the nodes that `by` gives is harmless, "" if it is not known.

        `what` is "mode", "access", "group" or "variable".
        """

    def is_node(self, path: str, number: tuple[int, int], host_root: str) -> bool:
        """Return whether the character device `path` with this (major, minor) is the driver's."""

    def is_device_node(self, path: str, host_root: str) -> bool:
        """Return whether `path` is the node of one device, which only its holders have."""

    def has_own_number(self, path: str, number: tuple[int, int]) -> bool:
        """Return whether the number of a node is that of its name, as far as the name has one."""

    def stale(self, paths: Iterable[str], host_root: str) -> list[str]:
        """Return those of the nodes `paths` whose device no longer exists."""

    def running_driver(self, host_root: str) -> str | None:
        """Return the version of the driver that the kernel has loaded, None for none."""


class Vendor(Protocol):
    """A vendor of GPUs, as commands and services use it. catalogue.py has the vendors."""

    @property
    def name(self) -> str:
        """The word of options and files: "nvidia"."""

    @property
    def title(self) -> str:
        """The name for people: "NVIDIA"."""

    @property
    def domain(self) -> str:
        """The prefix of resources, labels and CDI kinds: "nvidia.com"."""

    @property
    def allocation_words(self) -> AllocationWords:
        """The words of an allocation of the device plugin."""

    @property
    def exporter(self) -> ExporterWords | None:
        """The vendor's exporter that judges the health of its GPUs, None without one."""

    @property
    def unshared(self) -> Mapping[str, str]:
        """The reasons for each key of the plugin's `sharing` that the vendor's GPUs do not have."""

    def owns(self, inventory: object) -> bool:
        """Return whether an inventory is of this vendor's model."""

    def named_devices(self, inventory: Any, rules: NamingRules) -> NamedDevices:
        """Return the devices of an inventory, each with the name of its resource."""

    def unusable(self, inventory: Any) -> dict[str, str]:
        """Return the reason for each device that no container can get, by its UUID."""

    def plugin_part(self, host_root: str, dev_root: str | None) -> VendorPart | None:
        """Return the vendor's part of a snapshot for the device plugin.

        None: the node has no such part, or the plugin queries this vendor's driver itself.
        """

    def with_lost(self, now: VendorPart | None, last: VendorPart) -> VendorPart:
        """Return a part with the devices that it lost since `last`; None: all of them."""

    def dumped_part(self, name: str) -> VendorPart | None:
        """Return the vendor's part of the node in an inventory file or profile, as plugin_part().

        Raises what inventory_file.load() raises.
        """

    def absence(self, host_root: str, inventory: str | None = None) -> str:
        """Return why a node has no GPUs of the vendor, "" if it may have some.

        The node is the one below `host_root`, or that of a dump or profile.
        """

    def spec_maker(self) -> Callable[[SpecChoices], DescribedDevices] | None:
        """Return what makes a CDI spec of device nodes.

        None: the spec has files of the driver, too, and generate-cdi has options for them.
        """

    def summary(self, host_root: str) -> GpuSummary | None:
        """Return the GPUs of a node for `gpuhook setup`.

        None: the node has none, or what doctor reads of it describes them.
        """

    def read_inventory(self, place: NodePlace) -> VendorInventory | None:
        """Return what the node at `place` has, None without a driver; raises the vendor's faults.

        It may take as long as the driver does.
        """

    def dumped_inventory(self, document: dict[str, Any], file: str) -> VendorInventory | None:
        """Return what the document of an inventory has, None if it has nothing of the vendor.

        Raises GH1502 with the name `file` if it cannot be a node's.
        """

    @property
    def traces(self) -> ContainerTraces:
        """The vendor's traces in a container."""

    def opened_usage(
        self, library: Callable[[], str]
    ) -> AbstractContextManager[Callable[[], UsageLook]]:
        """Return what yields a function that reads the devices and their present usage.

        `library` returns the path of the driver's library by the options of a command, or raises
        GpuhookError; a vendor without a library does not call it.
        """

    def known_devices(self) -> tuple[UsageDevice, ...]:
        """Return the devices without their usage; the driver is not asked."""

    def file_devices(self, name: str) -> tuple[UsageDevice, ...]:
        """Return the vendor's devices in an inventory file or profile, without their usage.

        Raises what inventory_file.load() raises.
        """

    def plugin_token(self, host_root: str) -> str:
        """Return the current token of plugin_part()."""

    def check_devices(
        self, part: VendorPart, host_root: str, dev_root: str | None
    ) -> dict[str, DeviceCheck]:
        """Return the state of each device of a part by its UUID, from the kernel's files."""

    def free_memory(self, part: VendorPart, uuid: str, host_root: str) -> int | None:
        """Return the free bytes of a device of a part, None if unknown."""

    def noted_nodes(self) -> dict[str, str]:
        """Return device node -> id as recorded on the node, {} for a vendor without a record."""

    def compute_mask(self, shares: Sequence[ComputeShare]) -> dict[str, str]:
        """Return the variables that give a container its shares of compute units, if there are any.

        `shares` are those of all of its devices, in their order.
        """

    def limit_devices(self, library: FindLibrary, host_root: str) -> list[LimitDevice]:
        """Return the devices of this node whose memory may be limited. Raises GpuhookError.

        `library` returns the path of the driver's library, for a vendor that has one.
        """

    def process_memory(self, host_root: str) -> Mapping[str, Mapping[int, int | None]]:
        """Return the bytes that processes use, by device and pid; None for unknown bytes.

        Of the devices whose processes the kernel's files show: none if a library is asked for them.
        """

    def limit_support(self, library: FindLibrary, host_root: str) -> LimitSupport:
        """Return whether this node can enforce memory limits."""

    @property
    def label_kinds(self) -> tuple[str, ...]:
        """The kinds of node labels that the configuration can choose from."""

    @property
    def default_label_kinds(self) -> tuple[str, ...]:
        """Those that a configuration which chooses none has."""

    def labels(
        self, part: VendorPart, kinds: Collection[str], host_root: str | None
    ) -> VendorLabels:
        """Return the labels that the devices of a part and their driver give a node.

        `host_root` is where the node's files are, None for a node that is not this machine.
        """

    def usage(self, part: VendorPart, host_root: str) -> tuple[UsageDevice, ...]:
        """Return the present usage of the devices of a part, from the kernel's files."""

    def support_facts(self) -> SupportFacts:
        """Return the files and the messages of the kernel that a support bundle has."""

    def support_inventory(self, host_root: str, dev_root: str) -> dict[str, Any] | None:
        """Return the inventory for a support bundle, by the kernel's files.

        None: the node has no driver of the vendor, or the bundle has the driver's answers.
        """

    def isolation(
        self, profile: str, sharing: str, memory_by: str, limit: str
    ) -> dict[str, str] | None:
        """Return a sentence each on a device's memory, compute, stability and crashes.

        `profile` is that of the UsageDevice, `sharing` and `memory_by` are words of
        usage/container_sharing.py, `limit` is the memory limit as a text, "" for none.
        """
