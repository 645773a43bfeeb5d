# SPDX-License-Identifier: Apache-2.0
"""Find a container by its id, the beginning of one, a pid, or its pod's names.

Looks into the state directories of the runtimes, wherever engines put them, and of the ledger's
entries. A container whose state cannot be read is skipped, and the reason is kept for the error.
"""

from __future__ import annotations

import errno
import os

from gpuhook.containers import rootless_state
from gpuhook.containers.container_names import ContainerNames
from gpuhook.containers.hot import ledger
from gpuhook.containers.warm import membership, runtime_state, state_roots
from gpuhook.containers.warm.runtime_state import (
    STOPPED,
    UNREADABLE,
    Found,
    NoStateError,
    UnreadableError,
)
from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_DENIED = os.strerror(errno.EACCES)
_NEAR = 5


def find(text: str, roots: Sequence[str] = ()) -> Found:
    """Return the container that `text` names; also looks into the state roots `roots`.

    In order: an id; a pid, of any process in a container; the beginning of an id; a pod, as
    namespace/pod/container, namespace/pod, pod/container or pod. Raises GH1735 if there is none,
    GH1736 if several match, GH1739 if its state cannot be read, GH1730 or GH1737 for a pid of no
    process or of the host.
    """
    search = _Search(roots)
    exact = search.named(lambda identity: identity == text)
    if exact:
        return _one(text, [f for f in exact if f.status != UNREADABLE] or exact, search)
    begun = search.named(lambda identity: bool(text) and identity.startswith(text))
    if text.isdecimal():
        return _by_number(text, begun, search)
    return _one(text, begun or search.of_pod(text), search)


def everything(
    roots: Sequence[str] = (),
) -> tuple[list[Found], dict[str, GpuhookError]]:
    """Return all containers with processes, sorted by id, and why others cannot be read.

    The others are ours, and their state is broken: GH1739 by the directory of the state. Also looks
    into `roots`. Raises GH1746 for a directory without permission: the caller needs all containers.
    """
    search = _Search(roots)
    living = search.in_order()
    denied = search.denied()
    if denied is not None:
        raise denied
    return living, search.broken


def visible(roots: Sequence[str] = ()) -> tuple[list[Found], GpuhookError | None]:
    """Return the containers with processes that this user may see, sorted by id.

    And GH1746 if there may be others. Also looks into `roots`.
    """
    search = _Search(roots)
    return search.in_order(), search.denied()


class _Search:
    """The content of the state directories: (state root, id), and why some cannot be read."""

    def __init__(self, roots: Sequence[str]) -> None:
        self.trouble: dict[str, str] = {}
        self.looked: list[str] = []
        self.broken: dict[str, GpuhookError] = {}
        self.empty: dict[str, str] = {}
        self._names = ContainerNames()
        self._entries = ledger.living()
        self._places: list[tuple[str, str]] = []
        seen: set[str] = set()
        recorded = (entry["root"] for entry in self._entries if entry["root"])
        theirs = []
        for root in dict.fromkeys([*roots, *recorded, *state_roots.present()]):
            if state_roots.is_of_another(os.path.abspath(root)):
                theirs.append(root)
                continue
            real = os.path.realpath(root)
            if real not in seen:
                seen.add(real)
                self._look(os.path.abspath(root), asked=root in roots)
        others = rootless_state.look(theirs)
        self._of_others = others.states
        self._places += others.states
        self.looked += others.looked
        self.trouble.update(others.trouble)

    def _look(self, root: str, *, asked: bool) -> None:
        try:
            names = os.listdir(root)
        except FileNotFoundError:
            if asked:
                self.trouble[root] = "there is no such directory"
            return
        except OSError as error:
            self.trouble[root] = error.strerror or str(error)
            return
        self.looked.append(root)
        self._places += [(root, name) for name in sorted(names) if ledger.is_id(name)]

    def named(self, is_meant: Callable[[str], bool]) -> list[Found]:
        """Return the containers whose ids match; an unreadable one has that status."""
        read = [self._read(root, name) for root, name in self._places if is_meant(name)]
        names = {found.id for found in read}
        return read + [f for f in self._unplaced() if is_meant(f.id) and f.id not in names]

    def _read(self, root: str, identity: str) -> Found:
        try:
            found = self._state(root, identity)
        except UnreadableError as error:
            where = os.path.join(root, identity)
            if isinstance(error, NoStateError):
                self.empty[where] = str(error)
            else:
                self.trouble[where] = str(error)
                if runtime_state.is_path_ours(where):
                    self.broken[where] = fault("GH1739", path=where, reason=error)
            found = Found(identity)
            found.state_root, found.status = root, UNREADABLE
            return found
        self._names.identify(found)
        return found

    def _state(self, root: str, identity: str) -> Found:
        """Return the container that a state describes; raises UnreadableError."""
        known = self._of_others.get((root, identity))
        if known is None:
            return runtime_state.read(root, identity)
        if isinstance(known, UnreadableError):
            raise known
        return known

    def _unplaced(self) -> list[Found]:
        """Return the containers that only the ledger knows."""
        found = [one for one in map(_of_ledger, self._entries) if one]
        for one in found:
            self._names.identify(one)
        return found

    def living(self) -> list[Found]:
        """Return all containers that have processes."""
        return _each_once([found for found in self.named(lambda _: True) if found.pid])

    def in_order(self) -> list[Found]:
        """Return all containers that have processes, sorted by id."""
        return sorted(self.living(), key=lambda found: (found.id, found.state_root))

    def denied(self) -> GpuhookError | None:
        """Return GH1746 if there are directories that this user may not read."""
        ours = [root for root in self.trouble if not state_roots.is_of_another(root)]
        denied = [root for root in ours if self.trouble[root] == _DENIED]
        if not denied:
            return None
        places = ", ".join(denied[:_NEAR]) + (", ..." if denied[_NEAR:] else "")
        return fault("GH1746", places=places)

    def of_pod(self, text: str) -> list[Found]:
        """Return the containers whose annotations name this pod, without the pod's sandbox."""
        words = text.split("/")
        return [found for found in self.living() if _is_named(found.pod, words)]

    def near(self, text: str) -> str:
        """Return a phrase with a few containers whose ids begin as `text` does, or any."""
        names = {found.id for found in self.living()}
        best = sorted(names, key=lambda name: (-_shared(name, text), name))
        if not best:
            if _DENIED in self.trouble.values():
                return "run as root: containers of other users are not visible"
            return "no container runs here that this user can see"
        return "there are " + ", ".join([*best[:_NEAR], *(["..."] if best[_NEAR:] else [])])


def _shared(one: str, other: str) -> int:
    """Return how many leading characters two names have in common."""
    return next(
        (n for n, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other))
    )


def _one(text: str, candidates: list[Found], search: _Search) -> Found:
    """Return the only candidate, or the only one that is not stopped; else raise."""
    chosen = [found for found in candidates if found.status != STOPPED] or candidates
    chosen = _each_once(chosen)
    if len(chosen) > 1:
        raise fault("GH1736", name=text, candidates=", ".join(map(_described, chosen)))
    if chosen and chosen[0].status == UNREADABLE:
        where = os.path.join(chosen[0].state_root, chosen[0].id)
        reason = search.trouble.get(where) or search.empty[where]
        raise fault("GH1739", path=where, reason=reason)
    if chosen:
        return chosen[0]
    trouble = [f"{path} ({reason})" for path, reason in search.trouble.items()]
    many = f"{len(trouble)} of them, such as " if len(trouble) > _NEAR else ""
    skipped = f"; not read: {many}{', '.join(trouble[:_NEAR])}" if trouble else ""
    places = ", ".join(search.looked) or "no state directory"
    raise fault("GH1735", name=text, places=places, skipped=skipped, near=search.near(text))


def _each_once(candidates: list[Found]) -> list[Found]:
    """Return the candidates without a user's entry for a container that root's state has, too."""
    of_root = {(found.pid, found.started) for found in candidates if not found.owner and found.pid}
    return [f for f in candidates if not f.owner or (f.pid, f.started) not in of_root]


def _described(found: Found) -> str:
    return f"{found.id} ({found.status} in {found.state_root or 'the ledger'})"


def _by_number(text: str, begun: list[Found], search: _Search) -> Found:
    """Return the container of a number, which may be a pid and the beginning of an id at once."""
    try:
        found: Found | None = membership.of_pid(int(text), search.living())
    except GpuhookError as error:
        if not begun or error.code not in ("GH1730", "GH1737"):
            raise
        found = None
    others = [other for other in begun if found is None or other.pid != found.pid]
    return _one(text, [*others, found] if found else others, search)


def _of_ledger(entry: dict[str, object]) -> Found | None:
    """Return the container of an entry that names no state root but the container's process."""
    pid, started, bundle = entry.get("pid"), entry.get("started"), entry.get("bundle")
    if entry["root"] or not isinstance(pid, int) or not isinstance(started, int):
        return None
    found = Found(str(entry["id"]), pid, started)
    try:
        with found.process() as process:
            found.status = runtime_state.status(process)
    except GpuhookError:
        return None
    found.bundle = bundle if isinstance(bundle, str) else ""
    return found


def _is_named(pod: dict[str, str], words: list[str]) -> bool:
    """Return whether the names of a pod's container match `words`, as far as these go."""
    if "container" not in pod or pod["container"] == "POD":  # CRI-O's name for a sandbox
        return False
    namespace, name, container = (pod.get(key) for key in ("namespace", "pod", "container"))
    forms = ([namespace, name, container], [namespace, name], [name, container], [name])
    return words in forms
