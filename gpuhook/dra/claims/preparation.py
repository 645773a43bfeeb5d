# SPDX-License-Identifier: Apache-2.0
"""Prepares claims for the containers of a pod, and ends that.

The order survives a kill at any moment: the intent in the checkpoint, the CDI spec, the checkpoint,
the answer; and at the end the spec, then the checkpoint. The kubelet repeats a call without answer.
All functions block, so each call has its thread.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from gpuhook.dra.claims import claim_edits, claim_spec, prepared_claim
from gpuhook.dra.claims.gpu_locks import GpuLocks
from gpuhook.dra.claims.prepared_claim import PreparedClaim
from gpuhook.dra.claims.settings import claim_shares
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.error_text import worded
from gpuhook.host.logs import logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpuhook.cdi.hot.container_edits import ContainerEdits, Spec
    from gpuhook.dra.claims.checkpoint.checkpoint_file import ClaimCheckpoint
    from gpuhook.dra.claims.claim import Claim, ClaimName
    from gpuhook.dra.claims.claim_reader import ClaimReader
    from gpuhook.dra.claims.claim_spec import ClaimSpecs
    from gpuhook.dra.claims.claim_status import ClaimStatus
    from gpuhook.dra.claims.driver_state import DriverState
    from gpuhook.dra.claims.prepared_claim import PreparedDevice
    from gpuhook.dra.claims.settings.device_modes import DeviceModes
    from gpuhook.dra.pool.pool_device import Pool

    Step = Callable[[str], None]  # notes what a call waits for

_UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,62}[0-9A-Za-z]")


class Preparation:
    """The claims of one driver. `current` returns the node's state, which a driver may block.

    `require_free` raises if a container of a device plugin has a device of an intent.
    """

    def __init__(
        self,
        driver: str,
        reader: ClaimReader,
        checkpoint: ClaimCheckpoint,
        specs: ClaimSpecs,
        current: Callable[[], DriverState],
        *,
        require_free: Callable[[PreparedClaim, Pool], None],
        modes: DeviceModes,
        status: ClaimStatus,
    ) -> None:
        self.driver = driver
        self._require_free = require_free
        self.checkpoint = checkpoint
        self.specs = specs
        self._reader = reader
        self._current = current
        self._modes = modes
        self._status = status
        self._locks = GpuLocks()

    def prepare(self, name: ClaimName, step: Step) -> tuple[PreparedDevice, ...]:
        """Return the devices of a claim, prepared once.

        Raises GH2600 to GH2606, GH2608, GH2609, GH2620 to GH2623, GH2625, the faults of the API
        server and of files, and what `require_free` raises.
        """
        _require_valid(name)
        step("the checkpoint")
        known = self.checkpoint.claims().get(name.uid)
        if known is not None and known.is_complete:
            if not self.specs.has(name.uid):
                self._renew(known, self._state(step), step)
            return claim_spec.prepared_devices(self.driver, known)
        step("the claim from the API server")
        claim = self._reader.read(name)
        state = self._state(step)
        intent = self._intent(claim, state)
        with self._hold(intent, step):
            self._carry_out(intent, state, step)
        return claim_spec.prepared_devices(self.driver, intent)

    def unprepare(self, name: ClaimName, step: Step) -> None:
        """End a claim, also one that is unknown; the claim may no longer exist."""
        _require_valid(name)
        step("the checkpoint")
        known = self.checkpoint.claims().get(name.uid)
        if known is None:
            self.specs.remove(name.uid)
            return
        with self._hold(known, step):
            self._undo(name.uid)

    def refresh(self, state: DriverState) -> None:
        """Write the specs that are missing or of another driver version; failures are logged."""
        for uid, known in self.checkpoint.claims().items():
            is_current = known.token == state.token and self.specs.has(uid)
            if is_current or not known.is_complete or state.trouble:
                continue
            try:
                self._renew(known, state, lambda _: None)
            except (GpuhookError, OSError) as error:
                fields = worded(error)
                logger().warning(
                    fields.message, claim=str(known.claim.name), code=fields.code, hint=fields.hint
                )

    def _state(self, step: Step) -> DriverState:
        """Return the node's state; raises GH2608."""
        step("the driver of the GPUs")
        state = self._current()
        if state.trouble:
            raise fault("GH2608", driver=self.driver, reason=state.trouble)
        return state

    @contextmanager
    def _hold(self, claim: PreparedClaim, step: Step) -> Iterator[None]:
        """Wait for the locks of a claim's GPUs, and hold them."""
        step("another claim of the same GPU")
        with self._locks.hold(one.gpu or one.uuid for one in claim.held):
            step("the CDI spec and the checkpoint")
            yield

    def _intent(self, claim: Claim, state: DriverState) -> PreparedClaim:
        """Return the intent for a claim; raises GH2605."""
        held = []
        for result in claim.devices:
            found = state.device(result.device)
            if found is None:
                pool = state.pool.name
                raise fault("GH2605", claim=claim.name, device=result.device, pool=pool)
            held.append(prepared_claim.held_device(result, found))
        return PreparedClaim(claim, tuple(held), state.token)

    def _carry_out(self, intent: PreparedClaim, state: DriverState, step: Step) -> None:
        """Write intent, modes, spec and result. After a failure nothing of the claim remains."""
        self.checkpoint.change(lambda claims: _begin(intent, state, claims))
        uid = intent.claim.name.uid
        try:
            step("the kubelet's list of containers with devices")
            self._require_free(intent, state.pool)
            step("the CDI spec and the checkpoint")
            complete = replace(self.checkpoint.claims()[uid], is_complete=True)
            self._modes.set(complete.shares)
            self.specs.write(complete, self._spec(complete, state))
            self.checkpoint.change(lambda claims: _put(complete, claims))
        except BaseException:
            with suppress(GpuhookError, OSError):
                self._undo_intent(uid)
            raise
        found = (state.device(one.device) for one in complete.claim.devices)
        self._status.put(complete, [one for one in found if one is not None])

    def _spec(self, prepared: PreparedClaim, state: DriverState) -> Spec:
        """Return the CDI spec of a claim, with what its shares add to the devices."""
        shares = prepared.shares

        def added(request: str) -> ContainerEdits:
            own = [one for one in shares if one.request == request]
            forms = state.sharing.forms
            servers = partial(self._modes.server, shares=shares, forms=forms)
            return claim_edits.edits(own, shares, state.sharing, servers)

        return claim_spec.document(prepared, state.pool, state.spec, added)

    def _undo_intent(self, uid: str) -> None:
        """Undo a claim, unless the driver of another pod has prepared it meanwhile."""
        known = self.checkpoint.claims().get(uid)
        if known is None or not known.is_complete:
            self._undo(uid)

    def _undo(self, uid: str) -> None:
        known = self.checkpoint.claims().get(uid)
        self.specs.remove(uid)
        self.checkpoint.change(lambda claims: _remove(uid, claims))
        self._modes.clear(() if known is None else known.shares)

    def _renew(self, known: PreparedClaim, state: DriverState, step: Step) -> None:
        """Write the spec of a prepared claim again, unless it has ended meanwhile."""
        _require_offered(known, state)
        new = replace(known, token=state.token)
        uid = known.claim.name.uid
        with self._hold(known, step):
            if self.checkpoint.claims().get(uid) == known:
                self.specs.write(new, self._spec(new, state))
                self.checkpoint.change(lambda claims: _put(new, claims))


def _begin(intent: PreparedClaim, state: DriverState, claims: dict[str, PreparedClaim]) -> None:
    """Add an intent with its shares; raises GH2606, and what _shared() raises."""
    _put(intent, claims)
    _put(_shared(intent, state, claims), claims)


def _shared(
    intent: PreparedClaim, state: DriverState, claims: Mapping[str, PreparedClaim]
) -> PreparedClaim:
    """Return an intent with its shares; raises GH2620 to GH2622 and GH2625."""
    names = dict.fromkeys(one.device for one in intent.claim.devices)
    devices = {name: found for name in names if (found := state.device(name)) is not None}
    held = [share for one in claims.values() for share in one.shares]
    shares = claim_shares.claim_shares(intent.claim, devices, state.sharing, held)
    return replace(intent, shares=shares)


def _require_offered(known: PreparedClaim, state: DriverState) -> None:
    """Raise GH2605 for a device that the configuration now excludes: its limit would be lost."""
    for share in known.shares:
        if share.memory and share.uuid not in state.sharing.forms.forms:
            raise fault("GH2605", claim=share.claim, device=share.device, pool=state.pool.name)


def _remove(uid: str, claims: dict[str, PreparedClaim]) -> None:
    claims.pop(uid, None)


def _put(new: PreparedClaim, claims: dict[str, PreparedClaim]) -> None:
    """Add a claim; raises GH2606 if another claim has one of its devices."""
    conflict = new.conflict(claims.values())
    if conflict is not None:
        device, other = conflict
        raise fault("GH2606", claim=new.claim.name, device=device.name, other=other.claim.name)
    claims[new.claim.name.uid] = new


def _require_valid(name: ClaimName) -> None:
    if _UID.fullmatch(name.uid) is None or not name.namespace or not name.name:
        raise fault("GH2600", claim=name, uid=name.uid)
