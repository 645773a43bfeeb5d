# SPDX-License-Identifier: Apache-2.0
"""The CDI specs of this node for plans, described in memory where no fresh file has them.

Nothing is written. The driver is asked at the start and after it has changed, not for each
container.
"""

from __future__ import annotations

import os
from threading import Lock

from gpuhook.cdi.hot import registry
from gpuhook.cdi.hot.registry import Registry
from gpuhook.device_plugin import driver_calls
from gpuhook.entry import cold_command, runtime
from gpuhook.entry.plan_context import PlanContext
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files, settings, state
from gpuhook.host.hot.engine_log import as_fault
from gpuhook.nri.policy import request_policy
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.hot import plan_nodes, prefilter
from gpuhook.vendors.plugin.plugin_place import Places, PluginPlace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.host.hot.engine_log import EngineLog
    from gpuhook.host.hot.settings import Settings
    from gpuhook.vendors.interface import VendorNode
    from gpuhook.vendors.interfaces.vendor_interface import Vendor


class NodeSettings:
    """The node's settings, read again when their file changes.

    Without a known policy, `trouble` refuses each container that requests a device. A container
    without one of `marks` requests none.
    """

    def __init__(self, compiler: cold_command.Compiler) -> None:
        self._compiler = compiler
        self._version = "unread"
        self.chosen = settings.Settings()
        self.trouble: GpuhookError | None = None
        self.marks: tuple[bytes, ...] = ()

    def is_current(self) -> bool:
        """Return whether the file is the one that was read."""
        return _version() == self._version

    def refresh(self) -> None:
        """Read the file: a program compiles it if it is new."""
        version = _version()
        self.chosen, self.trouble = runtime.read_settings(self._compiler)
        own = runtime.own_marks(self.chosen)
        # In JSON, a quote precedes a variable.
        marks = (mark.strip(b'"') for mark in (*prefilter.MARKS, *own, *request_policy.MARKS))
        self.marks = tuple(dict.fromkeys(marks))
        self._version = version


def _version() -> str:
    try:
        return files.version(os.stat(settings.path()))
    except OSError as error:
        return str(error.errno)


class NodeSpecs:
    """The specs of this node; any thread may ask."""

    def __init__(self, compiler: cold_command.Compiler) -> None:
        self._compiler = compiler
        self._described: list[Compiled] = []
        self._lock = Lock()

    def context(self, chosen: Settings, log: EngineLog) -> PlanContext:
        """Return the context of one container's plan, with the devices of all vendors."""

        def load(vendor: str, way: str) -> Registry:
            found = registry.load(chosen.spec_dirs, self._compiler.compile_spec, vendor, way)
            return self._with_described(found, vendor, way)

        def refresh(is_needed: Callable[[], bool]) -> str:
            return self.describe(chosen, is_needed)

        node = plan_nodes.first_node(chosen, load)
        return PlanContext(chosen, node, log, refresh, plan_nodes.further_nodes(load))

    def prime(self, chosen: Settings, log: EngineLog) -> str:
        """Describe the devices that no fresh file describes; returns why that failed, or ""."""
        context = self.context(chosen, log)
        try:
            is_needed = any(_is_undescribed(one.node) for one in context.every())
        except GpuhookError as error:  # a driver that does not answer; a create asks again
            return f"{error.code}: {error.message}"
        return self.describe(chosen, lambda: True) if is_needed else ""

    def describe(self, chosen: Settings, is_needed: Callable[[], bool]) -> str:
        """Ask the drivers, and describe their devices; returns why that failed, or ""."""
        with self._lock:
            if not is_needed():
                return ""
            failures: list[str] = []
            found: list[Compiled] = []
            for vendor in vendors():
                try:
                    found += _specs(vendor, chosen)
                except (GpuhookError, OSError) as error:
                    trouble = as_fault(error, vendor.title)
                    failures.append(f"{trouble.code}: {trouble.message}")
            if found:
                self._described = found
            return "; ".join(failures)

    def _with_described(self, found: Registry, vendor: str, way: str) -> Registry:
        """Return the registry with the described specs in place of the files of their kinds."""
        specs = [one for one in self._described if one.kind.partition("/")[0] == vendor]
        if not specs:
            return found
        kinds = {one.kind for one in specs}
        layers = [[one] for one in (*found.broken, *found.all()) if one.kind not in kinds]
        return Registry(found.dirs, layers, vendor, way).over(specs)


def _is_undescribed(node: VendorNode) -> bool:
    """Return whether a node has a driver, and no fresh spec of its devices."""
    if not node.has_driver():
        return False
    try:
        specs = node.registry().kind(node.kind)
    except GpuhookError:
        return True
    return any(map(node.changes, specs))


def _specs(vendor: Vendor, chosen: Settings) -> list[Compiled]:
    """Return the specs of a vendor's devices as generate-cdi would write them now.

    [] for a node without any. Raises GpuhookError.
    """
    place = _place(vendor, chosen)
    part = driver_calls.call_driver(vendor, "nri", lambda: vendor.plugin_part(place))
    if part is None or not part.has_hardware:
        return []
    if part.error is not None:
        raise part.error
    return vendor.described_node(part.inventory, chosen).node.registry().all()


def _place(vendor: Vendor, chosen: Settings) -> PluginPlace:
    """Return where the node's files are: by the settings, else where the vendor has its driver."""
    root = chosen.driver_root or next(iter(vendor.driver_roots(())), "/")
    dev = chosen.dev_root or (root if vendor.holds_nodes(root) else "/")
    places = Places(root, dev, root, dev)
    return PluginPlace(state.host_root(), chosen.dev_root or None, places)
