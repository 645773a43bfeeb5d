# SPDX-License-Identifier: Apache-2.0
"""This node by its CDI specs, for a program that only reads: nothing is written or compiled.

gpuhook-runtime's refresh of a stale spec is reported here, and not done.
"""

from __future__ import annotations

from gpuhook.apply.rootfs import hook_args
from gpuhook.cdi import spec_list
from gpuhook.cdi.hot.registry import Registry
from gpuhook.entry.plan_context import PlanContext
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import settings, state
from gpuhook.node import settings_file
from gpuhook.node.described_node import Heard, no_compiler
from gpuhook.request import plan
from gpuhook.vendors.hot import further_nodes
from gpuhook.vendors.nvidia.hot import host_fingerprint
from gpuhook.vendors.nvidia.hot.nvidia_node import NvidiaNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.host.hot.settings import Settings
    from gpuhook.vendors.interface import VendorNode


class SpecNode(NvidiaNode):
    """This node by its current specs, read once."""

    def __init__(self, chosen: Settings) -> None:
        super().__init__(chosen, no_compiler)
        self._is_refreshing = chosen.on_stale == settings.REFRESH
        self._registry: Registry | None = None
        self._awaited: set[str] = set()

    def registry(self) -> Registry:
        """Return the registry of this node's CDI specs."""
        if self._registry is None:
            dirs = self._spec_dirs
            vendor = self.kind.partition("/")[0]
            self._registry = Registry(dirs, spec_list.layers(dirs), vendor)
        return self._registry

    def await_refresh(self) -> dict[str, str]:
        """Treat stale specs that a create would write again as fresh.

        Returns path -> what has changed on this host since. {} if such containers are refused: by
        cdi.onStale, for a user who may not write specs, and without a GPU.
        """
        if not self._is_refreshing or state.is_rootless():
            return {}
        found: dict[str, str] = {}
        for spec in self.registry().all():
            for job in hook_args.own_jobs(spec.edits):
                changed = host_fingerprint.changes(job)
                if changed and not host_fingerprint.absence(job.host_root):
                    self._awaited.add(job.fingerprint)
                    found[spec.path] = "; ".join(changed)
        return found

    def require_fresh(self, job: hook_args.Jobs) -> None:
        """Raise GH1120 if the job's spec is stale and no create would write it again."""
        if job.fingerprint not in self._awaited:
            super().require_fresh(job)


def context_of_node() -> PlanContext:
    """Return the context of plans on this node, with its settings; GH1530 if these are broken."""
    chosen = settings_file.of_node()
    return PlanContext(chosen, SpecNode(chosen), Heard(), others=others_of_node(chosen))


def others_of_node(chosen: Settings) -> list[VendorNode]:
    """Return this node with the devices of the further vendors, by its current specs."""
    dirs = chosen.spec_dirs
    return further_nodes.further_nodes(
        lambda vendor, way: Registry(dirs, spec_list.layers(dirs), vendor, way)
    )


def known_capabilities(spec: dict[str, Any], context: PlanContext) -> frozenset[str]:
    """Return the driver capabilities that a container requests, of those it may have.

    The default for unknown or forbidden capabilities.
    """
    try:
        return plan.capabilities(spec, context.settings, context.node)
    except GpuhookError:
        return plan.parse_capabilities(None, context.settings, context.node)
