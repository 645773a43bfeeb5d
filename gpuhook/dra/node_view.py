# SPDX-License-Identifier: Apache-2.0
"""The node as the drivers know it: the vendors' parts, and what claims are prepared from.

A claim never gets files of a driver version that is no longer installed: the vendor's token, which
changes with the driver, is compared at each prepare.
"""

from __future__ import annotations

import hashlib
import os
import threading
from dataclasses import dataclass, field

from gpuhook.device_plugin import node_snapshot, reconcile
from gpuhook.device_plugin.allocate import interposers, plugin_specs
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.dra.claims import claim_edits
from gpuhook.dra.claims.driver_state import DriverState
from gpuhook.dra.claims.settings.claim_settings import NodeSharing
from gpuhook.dra.pool import node_pool, sharing_form
from gpuhook.dra.pool.pool_device import Pool
from gpuhook.dra.pool.sharing_form import SharingForms
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
    forms: SharingForms = field(default_factory=SharingForms)


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

    @property
    def forms(self) -> SharingForms:
        """How claims share the devices of all vendors, by the last take()."""
        return self._view.forms

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
        try:
            sharing = self._sharing(configuration, snapshot)
        except GpuhookError as error:  # the configuration does not fit the node
            warnings.append(f"{error.code}: {error.message}; {error.hint}")
            last = {one.domain: self._last(one.domain, error.message) for one in snapshot.parts}
            self._view = _View(configuration, snapshot, last, tuple(warnings), self.forms)
            return snapshot
        warnings += sharing.forms.warnings
        states = {}
        for part in snapshot.parts:
            states[part.domain], more = self._state(part, sharing, snapshot, hook)
            warnings += [*part.warnings, *more]
        found = tuple(dict.fromkeys(warnings))
        self._view = _View(configuration, snapshot, states, found, sharing.forms)
        return snapshot

    def _sharing(self, configuration: Configuration, snapshot: NodeSnapshot) -> NodeSharing:
        """Return how claims share the devices; raises the faults of sharing_forms()."""
        if not snapshot.parts:
            return NodeSharing(configuration=configuration)
        forms = sharing_form.sharing_forms(configuration, *snapshot.inventories)
        unenforced = {
            part.domain: reconcile.missing_driver_limits(part.domain, self._launch, snapshot)
            for part in snapshot.parts
        }
        lacking = {}
        if not snapshot.is_dump:
            known = configuration.own.interposers
            lacking = interposers.missing(forms.resources(), known, snapshot.places)
        return NodeSharing(forms, configuration, unenforced, lacking)

    def _state(
        self,
        part: VendorPart,
        sharing: NodeSharing,
        snapshot: NodeSnapshot,
        hook: plugin_specs.Hook,
    ) -> tuple[DriverState, list[str]]:
        """Return the state for a vendor's part, and warnings."""
        host_root, node = self._launch.host_root, self._launch.node_name
        place = None if snapshot.is_dump else host_root
        pool = node_pool.node_pool(part, sharing.forms, node, place)
        warnings: list[str] = []
        trouble = part.trouble or part.files_trouble
        if part.error is not None:
            trouble = part.error.message
        spec = _NO_SPEC
        if not trouble:
            try:
                own = {one.device.uuid: one.device for one in pool.devices}
                spec, more = plugin_specs.describe(part, own.values(), hook, host_root)
                # Wrapper and hook know the node's devices, and the driver's library, by this spec.
                plugin_specs.write(spec, None if place is None else self._launch.cdi_directory)
                spec = claim_edits.with_hook(spec, part.domain, hook.path)
                warnings += more
            except GpuhookError as error:
                trouble = error.message
        # The vendor's token names the files of all MIG instances: 24 kB in each claim.
        token = hashlib.sha256(os.fsencode(snapshot.tokens.get(part.domain, ""))).hexdigest()
        return DriverState(pool, spec, token, trouble, sharing), warnings
