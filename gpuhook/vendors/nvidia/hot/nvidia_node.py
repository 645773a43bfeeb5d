# SPDX-License-Identifier: Apache-2.0
"""A node with NVIDIA GPUs: the answers to the core's questions (vendors/interface.py).

Modules that few creates need are loaded on demand.
"""

from __future__ import annotations

from gpuhook.apply.rootfs import hook_args
from gpuhook.apply.spec import oci_spec
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import bundle, state
from gpuhook.request import parse
from gpuhook.vendors.nvidia.hot import capability_filter, host_fingerprint
from gpuhook.vendors.nvidia.hot import vocabulary as words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any

    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.cdi.hot.registry import Registry
    from gpuhook.host.hot.settings import Settings
    from gpuhook.request.extra_requests import Extra
    from gpuhook.request.parse import Source
    from gpuhook.vendors.interface import VendorNode
    from gpuhook.vendors.nvidia.hot.requirement_check import KnownGpu

_NAMES = "gpuhook.vendors.nvidia.hot.device_names.node_devices"
_EXTRAS = "gpuhook.vendors.nvidia.hot.extras.extra_devices"
_REQUIREMENTS = "gpuhook.vendors.nvidia.hot.requirement_check"


class NvidiaNode:
    """This node by its CDI specs, which are read once."""

    is_here = True
    vocabulary = words.VOCABULARY
    capability_words = words.CAPABILITIES
    apart = (words.CSV_DEVICE,)
    # Answers that do not depend on the node.
    filter_edits = staticmethod(capability_filter.filter_edits)
    is_extra = staticmethod(words.is_extra)
    parse_capabilities = staticmethod(words.parse_capabilities)
    requires = staticmethod(words.requires)
    take_jobs = staticmethod(capability_filter.take_jobs)
    is_node = staticmethod(words.is_node)
    is_gpu_node = staticmethod(words.is_gpu_node)
    control_nodes: tuple[str, ...] = ()  # by the specs
    # The nodes of the other vendors of a plan: this node serves what they do not serve.
    others: Sequence[VendorNode] = ()

    def __init__(self, settings: Settings, load: Callable[[str, str], Registry]) -> None:
        """Take the settings; `load(vendor, way)` returns the registry of the specs."""
        self.kind = settings.default_kind or words.VOCABULARY.default_kind
        self._roots = (settings.driver_root, settings.dev_root)
        self._load = load
        self._registry: Registry | None = None
        self._awaited: set[str] = set()

    def serves(self, name: str) -> bool:
        """Return whether a name in an annotation is not one of another vendor's node."""
        return not any(other.serves(name) for other in self.others)

    def serves_resource(self, variable: str, value: str) -> bool:
        """Return whether an orchestrator's variable names no devices of another vendor's node."""
        return not any(other.serves_resource(variable, value) for other in self.others)

    def own_nodes(self, paths: Collection[str]) -> frozenset[str]:
        """Return which of a container's device nodes are not of another vendor's node."""
        return frozenset(paths).difference(*(other.own_nodes(paths) for other in self.others))

    def registry(self) -> Registry:
        """Return the registry of this node's CDI specs."""
        if self._registry is None:
            self._registry = self._load(self.kind.partition("/")[0], "")
        return self._registry

    def registry_for(self, names: Sequence[str]) -> Registry:
        """Return that registry, with the node's current devices of kinds other than the GPUs'.

        Raises the faults of extra_devices.require_device() for missing devices among `names`.
        """
        found = self.registry()
        if not self.is_here or not any(map(words.is_extra, names)):
            return found
        bundle.load(_EXTRAS)
        from gpuhook.vendors.nvidia.hot.extras import extra_devices

        roots = extra_devices.find_roots(found, self.kind, *self._roots)
        return extra_devices.extended_registry(found, names, roots)

    def alias(self, name: str) -> str | None:
        """Return the name in the node's specs of the GPU with another name, None if unknown.

        The name in node.json applies; without one, specs and kernel are searched.
        """
        bundle.load(_NAMES)
        from gpuhook.vendors.nvidia.hot.device_names import node_devices

        return node_devices.alias(name, self.registry, self.kind)

    def other_names(self) -> list[str]:
        """Return other names of the devices that alias() knows, at least the UUIDs."""
        bundle.load(_NAMES)
        from gpuhook.vendors.nvidia.hot.device_names import node_devices

        return node_devices.other_names()

    def full_names(self, name: str) -> list[str]:
        """Return the full names of a short form, [] for another name; raises GH1060."""
        bundle.load(_NAMES)
        from gpuhook.vendors.nvidia.hot.device_names import node_devices

        return node_devices.full_names(name, self)

    def refusal(self, name: str, error: GpuhookError, source: Source | None) -> GpuhookError:
        """Return the fault of a requested name in place of the registry's fault."""
        bundle.load(_NAMES)
        from gpuhook.vendors.nvidia.hot.device_names import node_devices

        return node_devices.refusal(name, error, source, self)

    def identities(self, paths: Collection[str]) -> dict[str, str]:  # noqa: ARG002
        """Return nothing: the minor in the name of a GPU's node is the GPU's."""
        return {}

    def nodes_by_device(self) -> dict[str, frozenset[str]]:
        """Return the own nodes of each device by qualified name, {} without a spec."""
        bundle.load(_NAMES)
        from gpuhook.vendors.nvidia.hot.device_names import node_devices

        try:
            return node_devices.nodes_by_device(self.registry(), self.kind)
        except GpuhookError:
            return {}

    def covered(self, nodes: Collection[str]) -> frozenset[str]:
        """Return the names of the devices that have nodes, and all of them among `nodes`."""
        bundle.load(_NAMES)
        from gpuhook.vendors.nvidia.hot.device_names import node_devices

        return node_devices.covered(nodes, self.registry(), self.kind)

    def noted_nodes(self) -> dict[str, str]:
        """Return the UUIDs that generate-cdi recorded in node.json."""
        bundle.load(_NAMES)
        from gpuhook.vendors.nvidia.hot import node_json

        return node_json.uuids()

    def driver_library(self) -> str:
        """Return the host path of the NVML library that this node's specs mount, "" for none."""
        bundle.load(_NAMES)
        from gpuhook.vendors.nvidia.hot.device_names import node_devices

        return node_devices.nvml(self.registry(), self.kind)

    def has_driver(self) -> bool:
        """Return whether this node has a driver loaded."""
        return host_fingerprint.driver_is_loaded(state.host_root())

    def missing_driver(self) -> tuple[str, str]:
        """Return the texts of a fault about a node without the driver."""
        return "the NVIDIA driver is not loaded on this node", "load the driver"

    def has_nodes(self, spec: dict[str, Any]) -> bool:
        """Return whether a config.json has device nodes of the driver."""
        return any(map(words.is_node, oci_spec.device_paths(spec)))

    def further_names(self, spec: dict[str, Any]) -> list[str]:
        """Return the device with the files of all CSV files of a Tegra, if a container requests it.

        [] also if those files name nothing beyond the files of every container.
        """
        variable, value = words.CSV_MOUNTS
        if parse.environment(spec).get(variable) != value:
            return []
        try:
            known = self.registry().names(self.kind)
        except GpuhookError:
            return []  # no spec of this kind, or two that contradict each other
        return [f"{self.kind}={words.CSV_DEVICE}"] if words.CSV_DEVICE in known else []

    def extra_requests(self, spec: dict[str, Any], settings: Settings) -> list[Extra]:
        """Return the devices that a container requests in addition to GPUs, judged by policy."""
        bundle.load(_EXTRAS)
        from gpuhook.vendors.nvidia.hot.extras import extra_devices

        return extra_devices.extra_requests(spec, settings)

    def require_fresh(self, job: Jobs) -> None:
        """Raise GH1120 if the spec of a job does not match the current state of this host."""
        if job.fingerprint not in self._awaited:
            host_fingerprint.require_fresh(job)

    def require_current(self, spec: Compiled) -> None:
        """Do nothing: the job of a spec's hook has its fingerprint, see require_fresh()."""

    def changes(self, spec: Compiled) -> list[str]:
        """Return what changed on this host since gpuhook wrote a spec, [] for another program's."""
        jobs = hook_args.own_jobs(spec.edits)[:1]
        return host_fingerprint.changes(jobs[0]) if jobs else []

    def await_refresh(self, spec: Compiled) -> None:
        """Treat a spec as fresh: a create would write it again first."""
        self._awaited.update(job.fingerprint for job in hook_args.own_jobs(spec.edits))

    def forget(self) -> None:
        """Forget the specs; the next call of registry() reads them again."""
        self._registry = None

    def judge_requirements(
        self, environment: Mapping[str, str], jobs: Sequence[Jobs], nodes: Iterable[str]
    ) -> list[GpuhookError]:
        """Return warnings of requirements that cannot be judged; raises GH1043 to GH1046."""
        bundle.load(_REQUIREMENTS)
        from gpuhook.vendors.nvidia.hot import requirement_check

        return requirement_check.check_requirements(environment, jobs, nodes, self.driver_facts)

    def driver_facts(self) -> KnownGpu:
        """Return the facts about the driver and the GPUs that are not in their specs."""
        from gpuhook.vendors.nvidia.hot import requirement_check

        return requirement_check.noted_facts()
