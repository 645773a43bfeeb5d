# SPDX-License-Identifier: Apache-2.0
"""The time slices and compute modes of the node's GPUs, set as configured, and put back.

What a GPU had is noted before it gets another value, and it gets it back when nobody wants the
other one any more: the key is gone, the device is no longer offered, the plugin ends. A value that
somebody else has set since is theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

from gpuhook.device_plugin.gpu_policies import saved_policies
from gpuhook.device_plugin.gpu_policies.node_policies import Gpus
from gpuhook.device_plugin.gpu_policies.policy_plan import PolicyPlan, policy_plan
from gpuhook.device_plugin.gpu_policies.saved_policies import Note
from gpuhook.device_plugin.health import recovery_evidence
from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.device_plugin.gpu_policies.policy_plan import Key
    from gpuhook.device_plugin.node_snapshot import Look
    from gpuhook.device_plugin.offer.offered_devices import Resource

_PATIENCE = 10.0  # seconds that the end waits for a turn that goes on


@dataclass(frozen=True, slots=True)
class PolicyState:
    """What was changed, as sentences, and what could not be."""

    changed: tuple[str, ...] = ()
    faults: tuple[GpuhookError, ...] = ()


class PolicyKeeping:
    """Keeps them; `host_root` has the host's /proc. Its methods block, and raise for no GPU."""

    def __init__(self, host_root: str) -> None:
        self._host_root = host_root
        self._notes: dict[Key, Note] | None = None  # None: not read yet
        self._boot: str | None = None
        self._last: tuple[Look, PolicyPlan] | None = None  # that nothing has to be done for again
        self._refused: list[GpuhookError] = []  # what came of that
        self._look: Look | None = None
        self._changed: list[str] = []
        self._faults: list[GpuhookError] = []
        self._is_over = False
        self._lock = Lock()

    @property
    def is_needed(self) -> bool:
        """Whether some GPU has to get something back at the end."""
        return bool(self._notes)

    def leave(self, resources: Iterable[Resource], look: Look) -> None:
        """Put back what `resources` do not ask for. What came of it, keep() tells.

        This comes before a GPU gets an MPS daemon, which has a compute mode of its own.
        """
        with self._lock:
            if not self._is_over and not look.is_dump:
                self._changed, self._faults = [], []
                self._look = look
                self._put_back(policy_plan(resources), Gpus(look))

    def keep(self, resources: Iterable[Resource], look: Look) -> PolicyState:
        """Give the GPUs of `resources` what their entries say, where they have not got it."""
        with self._lock:
            if self._is_over or look.is_dump:
                return PolicyState()
            asked = policy_plan(resources)
            if self._last is None or self._last[0] is not look or self._last[1] != asked:
                self._refused = self._set(asked, Gpus(look))
                self._last = look, asked
            faults = (*asked.faults, *self._faults, *self._refused)
            return PolicyState(tuple(self._changed), faults)

    def end(self) -> PolicyState:
        """Put everything back; nothing is set after this."""
        if not self._lock.acquire(timeout=_PATIENCE):
            return PolicyState()  # the next plugin reads the notes
        try:
            self._is_over = True
            self._changed, self._faults = [], []
            if self._look is not None:
                self._put_back(PolicyPlan(), Gpus(self._look))
            return PolicyState(tuple(self._changed), tuple(self._faults))
        finally:
            self._lock.release()

    def _known(self) -> dict[Key, Note]:
        if self._notes is None:
            self._boot = recovery_evidence.read(root=self._host_root).boot
            self._notes = saved_policies.read(self._boot)
        return self._notes

    def _put_back(self, asked: PolicyPlan, gpus: Gpus) -> None:
        left = [key for key in self._known() if key not in asked.values and gpus.knows(key[0])]
        gpus.ask(left)
        for key in left:
            uuid, kind = key
            note = self._known()[key]
            try:
                if gpus.get(key) == note.ours != note.before:
                    gpus.set(key, note.before)
                    self._changed.append(f"the {kind} of {uuid} is {note.before} again")
            except GpuhookError as error:
                facts = {"kind": kind, "uuid": uuid, "before": note.before, "ours": note.ours}
                self._faults.append(fault("GH1881", **facts, reason=error.message))
                continue
            self._strike_out(key)

    def _set(self, asked: PolicyPlan, gpus: Gpus) -> list[GpuhookError]:
        faults = []
        keys = [key for key in asked.values if gpus.knows(key[0])]
        gpus.ask(keys)
        for key in keys:
            try:
                self._set_one(key, asked.values[key], gpus)
            except GpuhookError as error:
                faults.append(error)
        return faults

    def _set_one(self, key: Key, value: str, gpus: Gpus) -> None:
        """Set one value, if it is another. Raises GpuhookError where the driver will not."""
        uuid, kind = key
        current, known = gpus.get(key), self._known().get(key)
        if known is None and current == value:
            return
        noted = Note(current if known is None else known.before, value)
        if noted != known:
            self._note(key, noted)
        if current == value:
            return
        try:
            gpus.set(key, value)
        except GpuhookError:
            self._note(key, known)
            raise
        self._changed.append(f"the {kind} of {uuid} is {value}, it was {current}")

    def _strike_out(self, key: Key) -> None:
        try:
            self._note(key, None)
        except GpuhookError as error:
            self._faults.append(error)

    def _note(self, key: Key, note: Note | None) -> None:
        """Write down what a GPU had, or strike it out. Raises GH1880 where that cannot be done."""
        notes = dict(self._known())
        notes.pop(key, None)
        if note is not None:
            notes[key] = note
        try:
            saved_policies.write(notes, self._boot)
        except OSError as error:
            facts = {"kind": key[1], "path": saved_policies.path()}
            raise fault("GH1880", **facts, reason=error.strerror or error) from error
        self._notes = notes
