# SPDX-License-Identifier: Apache-2.0
"""What tests plan by: this node, a node by its facts, and a node of a vendor with devices alone."""

from __future__ import annotations

from typing import Any

from gpuhook.cdi.hot import registry
from gpuhook.entry.plan_context import PlanContext, plan_logged, source_logged
from gpuhook.host.hot.settings import Settings
from gpuhook.node.kept_log import KeptLog
from gpuhook.request import plan
from gpuhook.request.parse import Source, Vocabulary
from gpuhook.vendors.nvidia.hot.nvidia_node import NvidiaNode
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import Node
from gpuhook.vendors.nvidia.spec.described_node import DescribedNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.cdi.hot.registry import Registry
    from gpuhook.errors import GpuhookError
    from gpuhook.request.extra_requests import Extra
    from gpuhook.request.plan import Injection
    from gpuhook.vendors.interface import VendorNode

WORDS = Vocabulary(
    devices_env="PLAIN_VISIBLE_DEVICES",
    capabilities_env="PLAIN_CAPABILITIES",
    replicas_env="PLAIN_REPLICAS",
    mount_prefix="/var/run/plain",
    default_kind="example.com/gpu",
    example_node="/dev/plain0",
    image_version_env="PLAIN_VERSION",
    image_requirement_env="PLAIN_REQUIRE",
    memory_request_env="PLAIN_MEMORY_REQUEST",
    memory_limit_env="PLAIN_MEMORY_LIMIT",
    memory_prefix="/var/run/plain-memory",
    hints_env="PLAIN_HINTS",
    extras={},
    extra_mounts={},
    privileged_kinds=(),
)


def chosen(**values: Any) -> Settings:
    """Return settings with some of them chosen."""
    settings = Settings()
    for name, value in values.items():
        assert hasattr(settings, name)
        setattr(settings, name, value)
    return settings


def this_node(settings: Settings | None = None) -> NvidiaNode:
    """Return this machine by its settings; YAML specs are not compiled."""
    settings = settings or Settings()
    return NvidiaNode(
        settings,
        lambda vendor, way: registry.load(settings.spec_dirs, lambda *_: None, vendor, way),
    )


def this_context(settings: Settings | None = None, log: KeptLog | None = None) -> PlanContext:
    """Return what this machine plans by, with a log that keeps what it hears."""
    settings = settings or Settings()
    return PlanContext(settings, this_node(settings), log or KeptLog())


def described(
    facts: Node | str,
    settings: Settings | None = None,
    log: KeptLog | None = None,
    *,
    is_elsewhere: bool = False,
) -> PlanContext:
    """Return what a node plans by that is described by its facts, or by a profile's."""
    settings = settings or Settings()
    facts = dump_file.load(facts) if isinstance(facts, str) else facts
    node = DescribedNode(facts, settings, is_elsewhere=is_elsewhere)
    return PlanContext(settings, node, log or KeptLog())


def planned(spec: dict[str, Any], context: PlanContext) -> Injection:
    """Return the plan of a container that requests something, as programs make it."""
    source = source_logged(spec, context)
    assert source is not None
    return plan_logged(spec, source, context)


class PlainNode:
    """A node of a vendor whose devices have nodes, and nothing else: no hooks, no capabilities."""

    vocabulary = WORDS
    is_here = True
    apart: tuple[str, ...] = ()
    capability_words: tuple[str, ...] = ()
    control_nodes: tuple[str, ...] = ()
    others: Sequence[VendorNode] = ()

    def __init__(
        self, registry: Registry, kind: str = "", aliases: Mapping[str, str] | None = None
    ) -> None:
        self.kind = kind or WORDS.default_kind
        self._registry = registry
        self._aliases = aliases or {}

    def registry(self) -> Registry:
        return self._registry

    def registry_for(self, names: Sequence[str]) -> Registry:
        return self._registry

    def alias(self, name: str) -> str | None:
        return self._aliases.get(name) or self._aliases.get(name.lower())

    def full_names(self, name: str) -> list[str]:
        return []

    def refusal(self, name: str, error: GpuhookError, source: Source | None) -> GpuhookError:
        return error

    def has_driver(self) -> bool:
        return True

    def identities(self, paths: Collection[str]) -> dict[str, str]:
        return {}

    def missing_driver(self) -> tuple[str, str]:
        return "", ""

    def serves(self, name: str) -> bool:
        return True

    def serves_resource(self, variable: str, value: str) -> bool:
        return True

    def is_node(self, path: str) -> bool:
        return False

    def is_gpu_node(self, path: str) -> bool:
        return False

    def own_nodes(self, paths: Collection[str]) -> frozenset[str]:
        return frozenset(paths)

    def nodes_by_device(self) -> dict[str, frozenset[str]]:
        return {}

    def covered(self, nodes: Collection[str]) -> frozenset[str]:
        return frozenset()

    def noted_nodes(self) -> dict[str, str]:
        return {}

    def driver_library(self) -> str:
        return ""

    def require_current(self, spec: Compiled) -> None:
        """No spec records a host."""

    def has_nodes(self, spec: dict[str, Any]) -> bool:
        return False

    def parse_capabilities(
        self,
        text: str | None,
        allowed: Sequence[str],
        default: Sequence[str],
        unknown: list[str] | None,
    ) -> frozenset[str]:
        return frozenset()

    def filter_edits(
        self, compiled: Compiled, edits: ContainerEdits, capabilities: frozenset[str]
    ) -> ContainerEdits:
        return edits

    def further_names(self, spec: dict[str, Any]) -> list[str]:
        return []

    def is_extra(self, name: str) -> bool:
        return False

    def extra_requests(self, spec: dict[str, Any], settings: Settings) -> list[Extra]:
        return []

    def take_jobs(
        self, edits: ContainerEdits, capabilities: frozenset[str]
    ) -> tuple[ContainerEdits, list[Jobs]]:
        return edits, []

    def require_fresh(self, job: Jobs) -> None:
        raise AssertionError(job)

    def changes(self, spec: Compiled) -> list[str]:
        return []

    def await_refresh(self, spec: Compiled) -> None:
        """No spec records a host."""

    def forget(self) -> None:
        """Nothing is kept."""

    def requires(self, environment: Mapping[str, str]) -> bool:
        return False

    def judge_requirements(
        self, environment: Mapping[str, str], jobs: Sequence[Jobs], nodes: Iterable[str]
    ) -> list[GpuhookError]:
        return []


def source_of(spec: dict[str, Any], settings: Settings, node: VendorNode) -> Source | None:
    """Return the source of a request that applies; warnings are dropped."""
    return plan.request_source(spec, settings, node, [])
