# SPDX-License-Identifier: Apache-2.0
"""A node with NVIDIA GPUs by its facts: this one without a CDI spec, or another one.

The node's facts (read now, or dumped elsewhere) are described as generate-cdi would, in memory;
from there on, requests are planned as on any node. Nothing is written.
"""

from __future__ import annotations

from gpuhook.cdi.hot import compiled_spec
from gpuhook.cdi.hot.registry import Registry
from gpuhook.host.hot import state
from gpuhook.vendors.nvidia.hot import requirement_check
from gpuhook.vendors.nvidia.hot.nvidia_node import NvidiaNode
from gpuhook.vendors.nvidia.spec import device_selection
from gpuhook.vendors.nvidia.spec.generate_options import Choices
from gpuhook.vendors.nvidia.spec.gpu_spec import describe
from gpuhook.vendors.spec.spec_choices import DESCRIBED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.apply.rootfs import hook_args
    from gpuhook.cdi.hot.container_edits import Spec
    from gpuhook.host.hot.settings import Settings
    from gpuhook.vendors.nvidia.hot.requirement_check import KnownGpu
    from gpuhook.vendors.nvidia.inventory.inventory import Node

_WAY = "`gpuhook inventory` shows what the node has; other kinds of devices need a CDI spec there"


class DescribedNode(NvidiaNode):
    """A node by its facts alone: the specs of this machine do not apply."""

    def __init__(
        self,
        node: Node,
        settings: Settings,
        *,
        is_elsewhere: bool = False,
        may_be_empty: bool = False,
    ) -> None:
        """Describe the node; raises as generate-cdi does: GH1206 and others.

        With `is_elsewhere`, its device nodes have the numbers of its facts: the nodes of this
        machine are not read. A node without GPUs raises GH1513, unless it `may_be_empty`.
        """
        super().__init__(settings, lambda _vendor, _way: self._described)
        vendor, _, device_class = self.kind.partition("/")
        host_root = "/" if is_elsewhere else state.host_root()
        self.choices = Choices(vendor=vendor, device_class=device_class, host_root=host_root)
        self._has_driver = bool(node.driver.module_version)
        self._facts = requirement_check.facts_of_inventory(node.driver, node.gpus)
        self._nvml = (node.driver.nvml or "") if is_elsewhere else None
        self.is_here = not is_elsewhere
        self.warnings: tuple[str, ...] = ()
        self._aliases: dict[str, str] = {}
        self._described = Registry([DESCRIBED], [[]], way=_WAY)
        if node.gpus or not may_be_empty:
            self._describe(node, is_elsewhere=is_elsewhere)

    def _describe(self, node: Node, *, is_elsewhere: bool) -> None:
        found = describe(node, self.choices)
        self.warnings = tuple(found.warnings)
        self._aliases = device_selection.aliases(found.gpus, self.choices.strategies)
        if is_elsewhere:
            _number(found.spec, node)
        compiled = compiled_spec.of_spec(DESCRIBED, found.spec)
        self._described = Registry([DESCRIBED], [[compiled]], way=_WAY)

    def has_driver(self) -> bool:
        """Return whether the node has a driver loaded."""
        return self._has_driver

    def alias(self, name: str) -> str | None:
        """Return the description's name of the GPU with another name, None if it is unknown."""
        return self._aliases.get(name.lower())

    def other_names(self) -> list[str]:
        """Return the names that alias() knows."""
        return list(self._aliases)

    def driver_facts(self) -> KnownGpu:
        """Return the facts of the driver and the GPUs."""
        return self._facts

    def driver_library(self) -> str:
        """Return the host path of the NVML library, of another node as in its facts."""
        return super().driver_library() if self._nvml is None else self._nvml

    def require_fresh(self, job: hook_args.Jobs) -> None:
        """Do nothing: the description was made now."""


def _number(spec: Spec, node: Node) -> None:
    """Set the numbers of a description's device nodes to those of the node."""
    known = {one.path: one for one in node.device_nodes}
    parts = [spec.get("containerEdits") or {}, *(one["containerEdits"] for one in spec["devices"])]
    for part in parts:
        for device in part.get("deviceNodes") or ():
            one = known.get(device["path"])
            if one is not None:
                device["type"], device["major"], device["minor"] = "c", one.major, one.minor
