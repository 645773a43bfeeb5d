# SPDX-License-Identifier: Apache-2.0
"""Sets the modes of devices: time slices, compute modes, and MPS servers.

They are those of the configuration file and of all prepared claims, so that they are the same after
a restart. The services of the device plugin set them, without the API server, and restore what was
before the last claim with a mode ends.
"""

from __future__ import annotations

import os
from threading import Lock

from gpuhook.device_plugin.allocate.container_allocation import Allocation
from gpuhook.device_plugin.config.sharing_section import MPS
from gpuhook.device_plugin.gpu_policies.policy_plan import COMPUTE_MODE, TIME_SLICE
from gpuhook.device_plugin.gpu_policies.policy_service import PolicyState
from gpuhook.device_plugin.mps.mps_service import MpsState
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.dra.claims.settings import claim_resources
from gpuhook.dra.pool.sharing_form import SharingForms
from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from gpuhook.device_plugin.gpu_policies.policy_service import PolicyService
    from gpuhook.device_plugin.mps.mps_service import MpsService
    from gpuhook.dra.claims.settings.device_share import DeviceShare

_SERVERS = "claims"  # the directory of MPS servers below flags.mpsRoot


class DeviceModes:
    """The modes of this node's devices. `held` returns the shares of all prepared claims.

    Its methods block while the driver sets a mode.
    """

    def __init__(
        self,
        policies: PolicyService,
        servers: MpsService,
        held: Callable[[], Iterable[DeviceShare]],
    ) -> None:
        self._policies = policies
        self._servers = servers
        self._held = held
        self._lock = Lock()
        self._forms = SharingForms()
        self._mps_root = ""
        self._snapshot = NodeSnapshot()
        self._mps = MpsState()
        self._state = PolicyState()

    def use(
        self, forms: SharingForms, mps_root: str, snapshot: NodeSnapshot
    ) -> tuple[GpuhookError, ...]:
        """Use a new state of the node, and return the faults of modes that are not set."""
        with self._lock:
            self._forms, self._snapshot = forms, snapshot
            self._mps_root = os.path.join(mps_root, _SERVERS) if mps_root else ""
            self._apply()
            return (*self._mps.faults, *self._state.faults)

    def set(self, shares: Collection[DeviceShare]) -> None:
        """Set the modes of a claim with these shares. Raises GH2623."""
        if not any(one.has_modes for one in shares):
            return
        with self._lock:
            for share in shares:
                self._require_ready(share)
            self._apply(shares)
            for share in shares:
                for what, kind in (("time slice", TIME_SLICE), ("compute mode", COMPUTE_MODE)):
                    error = self._state.refused.get((share.uuid, kind))
                    if error is not None and share.has_modes:
                        raise _not_set(share, what, error.message, error.hint)
        for share in shares:
            self.server(share, shares, self._forms)

    def clear(self, shares: Iterable[DeviceShare]) -> None:
        """Restore the modes of a claim that `held` no longer has, unless another one needs them."""
        with self._lock:
            if self._forms.forms and any(one.has_modes for one in shares):
                self._apply()

    def server(
        self, share: DeviceShare, shares: Collection[DeviceShare], forms: SharingForms
    ) -> Allocation:
        """Return the variables and mounts of the MPS server of a share; empty without one.

        `shares` are all of the claim. Raises GH2623 if the server does not run.
        """
        form = forms.forms.get(share.uuid)
        if share.is_admin or form is None:
            return Allocation()
        if share.settings.mps is not None:
            name = claim_resources.server_name(shares, forms)
        elif form.strategy == MPS:
            name = form.offered_name
        else:
            return Allocation()
        self._require_ready(share)
        found = self._mps.given.get(name)
        if found is None:
            reason = self._mps.unready.get(share.uuid, "it does not run")
            raise _not_set(share, "MPS server", reason, "")
        return found

    def _require_ready(self, share: DeviceShare) -> None:
        """Raise GH2623 for a device that use() has not had yet: its mode could not be set."""
        if share.uuid not in self._forms.forms and not share.is_admin:
            raise _not_set(share, "mode", "the driver has just found it", "the kubelet tries again")

    def _apply(self, new: Iterable[DeviceShare] = ()) -> None:
        """Set exactly the modes that the file and the claims need."""
        claims = claim_resources.mode_resources([*self._held(), *new], self._forms)
        resources = (*self._forms.resources(), *claims)
        # A server sets its own compute mode, so earlier values are restored first.
        self._policies.restore(resources, self._snapshot)
        self._mps = self._servers.update(resources, self._mps_root, self._snapshot)
        self._state = self._policies.update(resources, self._snapshot)


def _not_set(share: DeviceShare, what: str, reason: str, hint: str) -> GpuhookError:
    facts = {"claim": share.claim, "device": share.device, "what": what, "reason": reason}
    return fault("GH2623", **facts, hint=hint or "the log of the driver has the reason")
