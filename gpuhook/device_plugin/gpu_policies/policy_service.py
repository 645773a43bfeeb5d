# SPDX-License-Identifier: Apache-2.0
"""Sets the configured time slices and compute modes of the node's GPUs, and restores them.

The previous value of a GPU is saved before it is changed. It is restored when the configuration no
longer has the key, the device is no longer offered, or the plugin ends. A value that another
program has set since is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

from gpuhook.device_plugin.gpu_policies import saved_policies
from gpuhook.device_plugin.gpu_policies.node_policies import GpuPolicies
from gpuhook.device_plugin.gpu_policies.policy_plan import PolicyPlan, policy_plan
from gpuhook.device_plugin.gpu_policies.saved_policies import SavedPolicy
from gpuhook.device_plugin.health import recovery_evidence
from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuhook.device_plugin.gpu_policies.policy_plan import Key
    from gpuhook.device_plugin.node_snapshot import NodeSnapshot
    from gpuhook.device_plugin.offer.offered_devices import Resource

_END_TIMEOUT = 10.0  # seconds that end() waits for a running turn


@dataclass(frozen=True, slots=True)
class PolicyState:
    """The changes, as sentences, and the faults; `refused` are those of values that are not set."""

    changed: tuple[str, ...] = ()
    faults: tuple[GpuhookError, ...] = ()
    refused: Mapping[Key, GpuhookError] = field(default_factory=dict)


class PolicyService:
    """Sets and restores policies; `host_root` has the host's /proc. Its methods block.

    `file` has the saved values: each program restores those of its own.
    """

    def __init__(self, host_root: str, file: str = saved_policies.FILE) -> None:
        self._host_root = host_root
        self._file = file
        self._saved: dict[Key, SavedPolicy] | None = None  # None: not read yet
        self._boot: str | None = None
        self._last: tuple[NodeSnapshot, PolicyPlan] | None = (
            None  # the applied plan, and for which snapshot
        )
        self._refused: dict[Key, GpuhookError] = {}  # the faults of that plan
        self._snapshot: NodeSnapshot | None = None
        self._changed: list[str] = []
        self._faults: list[GpuhookError] = []
        self._is_over = False
        self._lock = Lock()

    @property
    def is_needed(self) -> bool:
        """Whether any GPU must be restored at the end."""
        return bool(self._saved)

    def restore(self, resources: Iterable[Resource], snapshot: NodeSnapshot) -> None:
        """Restore the values that `resources` no longer configure; update() returns the outcome.

        It must precede the start of an MPS daemon, which sets its own compute mode.
        """
        with self._lock:
            if not self._is_over and not snapshot.is_dump:
                self._changed, self._faults = [], []
                self._snapshot = snapshot
                self._restore(policy_plan(resources), GpuPolicies(snapshot))

    def update(self, resources: Iterable[Resource], snapshot: NodeSnapshot) -> PolicyState:
        """Set the configured values of `resources` where they differ."""
        with self._lock:
            if self._is_over or snapshot.is_dump:
                return PolicyState()
            plan = policy_plan(resources)
            if self._last is None or self._last[0] is not snapshot or self._last[1] != plan:
                self._refused = self._set(plan, GpuPolicies(snapshot))
                self._last = snapshot, plan
            faults = (*plan.faults, *self._faults, *self._refused.values())
            return PolicyState(tuple(self._changed), faults, dict(self._refused))

    def end(self) -> PolicyState:
        """Restore all values; later calls have no effect."""
        if not self._lock.acquire(timeout=_END_TIMEOUT):
            return PolicyState()  # the next plugin restores the saved values
        try:
            self._is_over = True
            self._changed, self._faults = [], []
            if self._snapshot is not None:
                self._restore(PolicyPlan(), GpuPolicies(self._snapshot))
            return PolicyState(tuple(self._changed), tuple(self._faults))
        finally:
            self._lock.release()

    def _read_saved(self) -> dict[Key, SavedPolicy]:
        if self._saved is None:
            self._boot = recovery_evidence.boot_id(self._host_root)
            self._saved = saved_policies.read(self._boot, self._file)
        return self._saved

    def _restore(self, plan: PolicyPlan, gpus: GpuPolicies) -> None:
        left = [key for key in self._read_saved() if key not in plan.values and gpus.knows(key[0])]
        gpus.prefetch(left)
        for key in left:
            uuid, kind = key
            saved = self._read_saved()[key]
            try:
                if gpus.get(key) == saved.ours != saved.before:
                    gpus.set(key, saved.before)
                    self._changed.append(f"the {kind} of {uuid} is {saved.before} again")
            except GpuhookError as error:
                facts = {"kind": kind, "uuid": uuid, "before": saved.before, "ours": saved.ours}
                self._faults.append(fault("GH1881", **facts, reason=error.message))
                continue
            self._discard(key)

    def _set(self, plan: PolicyPlan, gpus: GpuPolicies) -> dict[Key, GpuhookError]:
        faults = {}
        keys = [key for key in plan.values if gpus.knows(key[0])]
        gpus.prefetch(keys)
        for key in keys:
            try:
                self._set_one(key, plan.values[key], gpus)
            except GpuhookError as error:
                faults[key] = error
        return faults

    def _set_one(self, key: Key, value: str, gpus: GpuPolicies) -> None:
        """Set one value if it differs. Raises GpuhookError if the driver refuses."""
        uuid, kind = key
        current, known = gpus.get(key), self._read_saved().get(key)
        if known is None and current == value:
            return
        saved = SavedPolicy(current if known is None else known.before, value)
        if saved != known:
            self._save(key, saved)
        if current == value:
            return
        try:
            gpus.set(key, value)
        except GpuhookError:
            self._save(key, known)
            raise
        self._changed.append(f"the {kind} of {uuid} is {value}, it was {current}")

    def _discard(self, key: Key) -> None:
        try:
            self._save(key, None)
        except GpuhookError as error:
            self._faults.append(error)

    def _save(self, key: Key, saved: SavedPolicy | None) -> None:
        """Save the previous value of a GPU, or discard it for None. Raises GH1880."""
        policies = dict(self._read_saved())
        policies.pop(key, None)
        if saved is not None:
            policies[key] = saved
        try:
            saved_policies.write(policies, self._boot, self._file)
        except OSError as error:
            facts = {"kind": key[1], "path": saved_policies.path(self._file)}
            raise fault("GH1880", **facts, reason=error.strerror or error) from error
        self._saved = policies
