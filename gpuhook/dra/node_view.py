# SPDX-License-Identifier: Apache-2.0
"""The node as the drivers know it: the vendors' parts, and what claims are prepared from.

A claim never gets files of a driver version that is no longer installed: the vendor's token, which
changes with the driver, is compared at each prepare.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from gpuhook.device_plugin import node_snapshot
from gpuhook.device_plugin.allocate import plugin_specs
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.dra.claims.driver_state import DriverState
from gpuhook.dra.pool import node_pool, sharing_form
from gpuhook.dra.pool.pool_device import Pool
from gpuhook.errors import GpuhookError
from gpuhook.vendors.catalogue import vendor_of_resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.cdi.hot.container_edits import Spec
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.vendors.plugin.vendor_part import VendorPart

_NO_SPEC: Spec = {"cdiVersion": "0.5.0", "devices": []}


@dataclass(frozen=True, slots=True)
class _View:
    """The node at one moment; `states` are by domain of the vendor."""

    configuration: Configuration = field(default_factory=Configuration)
    snapshot: NodeSnapshot = field(default_factory=NodeSnapshot)
    states: Mapping[str, DriverState] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class NodeView:
    """The node of `launch`. Any thread may call it; it blocks for as long as a driver does."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._lock = threading.Lock()
        self._view = _View()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of the last take()."""
        return self._view.warnings

    def take(self, configuration: Configuration) -> NodeSnapshot:
        """Read the node again, and return it; raises the error of a vendor."""
        with self._lock:
            return self._take(configuration)

    def state(self, domain: str) -> DriverState:
        """Return the last state of a vendor."""
        title = vendor_of_resource(domain).title
        return self._last(domain, f"the node has no GPU of {title}")

    def _last(self, domain: str, trouble: str) -> DriverState:
        """Return the last state of a vendor, else one with this trouble."""
        found = self._view.states.get(domain)
        if found is not None:
            return found
        driver = vendor_of_resource(domain).dra_driver
        pool = Pool(driver, self._launch.node_name, reason=trouble)
        return DriverState(pool, _NO_SPEC, trouble=trouble)

    def current(self, domain: str) -> DriverState:
        """Return the state of a vendor, read again if its driver or devices have changed."""
        if self._is_outdated(domain):
            with self._lock:
                if self._is_outdated(domain):
                    self._take(self._view.configuration)
        return self.state(domain)

    def _is_outdated(self, domain: str) -> bool:
        return node_snapshot.has_other_devices(domain, self._view.snapshot, self._launch)

    def _take(self, configuration: Configuration) -> NodeSnapshot:
        snapshot = node_snapshot.take(self._launch, configuration)
        snapshot = node_snapshot.with_lost(snapshot, self._view.snapshot)
        hook = plugin_specs.hook(configuration.flags)
        warnings = [*snapshot.failures, *filter(None, [hook.warning])]
        states = {}
        for part in snapshot.parts:
            states[part.domain], more = self._state(part, configuration, snapshot, hook)
            warnings += [*part.warnings, *more]
        self._view = _View(configuration, snapshot, states, tuple(dict.fromkeys(warnings)))
        return snapshot

    def _state(
        self,
        part: VendorPart,
        configuration: Configuration,
        snapshot: NodeSnapshot,
        hook: plugin_specs.Hook,
    ) -> tuple[DriverState, list[str]]:
        """Return the state for a vendor's part, and warnings."""
        host_root = self._launch.host_root
        try:
            sharing = sharing_form.sharing_forms(configuration, part.inventory)
        except GpuhookError as error:  # the configuration does not fit the node
            reason = f"{error.code}: {error.message}; {error.hint}"
            return self._last(part.domain, error.message), [reason]
        is_here = self._launch.inventory is None
        node = self._launch.node_name
        pool = node_pool.node_pool(part, sharing, node, host_root if is_here else None)
        warnings = [*sharing.warnings]
        trouble = part.trouble or part.files_trouble
        if part.error is not None:
            trouble = part.error.message
        spec = _NO_SPEC
        if not trouble:
            try:
                own = {one.device.uuid: one.device for one in pool.devices}
                spec, more = plugin_specs.describe(part, own.values(), hook, host_root)
                warnings += more
            except GpuhookError as error:
                trouble = error.message
        token = snapshot.tokens.get(part.domain, "")
        return DriverState(pool, spec, token, trouble), warnings
