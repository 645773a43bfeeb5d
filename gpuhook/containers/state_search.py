# SPDX-License-Identifier: Apache-2.0
"""The containers of this node, as the state directories of the runtimes show them.

These are wherever engines put them; the ledger's entries name further ones. A container whose state
cannot be read is skipped, and the reason is kept for the error.
"""

from __future__ import annotations

import errno
import os
from functools import cached_property

from gpuhook.containers import container_names, rootless_state
from gpuhook.containers.container_names import ContainerNames
from gpuhook.containers.hot import ledger
from gpuhook.containers.warm import runtime_state, state_roots
from gpuhook.containers.warm.runtime_state import (
    UNREADABLE,
    Found,
    NoStateError,
    UnreadableError,
)
from gpuhook.errors import GpuhookError, fault
from gpuhook.host import suggestion
from gpuhook.host.hot import state
from gpuhook.kernel import cgroup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpuhook.containers.stores.stored_container import StoredContainer
    from gpuhook.kernel.mountinfo import Mount

_DENIED = os.strerror(errno.EACCES)
_NEAR = 5
_POD_WORDS = 3


class ContainerSearch:
    """The content of the state directories: (state root, id), and why some cannot be read."""

    def __init__(self, roots: Sequence[str]) -> None:
        self.trouble: dict[str, str] = {}
        self.looked: list[str] = []
        self.broken: dict[str, GpuhookError] = {}
        self.empty: dict[str, str] = {}
        self._names = ContainerNames()
        self._mounted = cgroup.hierarchies()
        self._entries = ledger.living()
        self._places: list[tuple[str, str]] = []
        self._known: dict[tuple[str, str], Found] = {}
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

    def of_id(self, is_meant: Callable[[str], bool]) -> list[Found]:
        """Return the containers whose ids match; an unreadable one has that status."""
        read = [self._read(root, name) for root, name in self._places if is_meant(name)]
        names = {found.id for found in read}
        return read + [f for f in self._unplaced if is_meant(f.id) and f.id not in names]

    def _read(self, root: str, identity: str) -> Found:
        """Return a container; its status is UNREADABLE if its state cannot be read."""
        key = root, identity
        if key not in self._known:
            self._known[key] = self._container(root, identity)
        return self._known[key]

    def _container(self, root: str, identity: str) -> Found:
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
            found.owner = state_roots.user_of(root) or found.owner
            return found
        self._names.identify(found)
        return found

    def _state(self, root: str, identity: str) -> Found:
        """Return the container that a state describes; raises UnreadableError."""
        known = self._of_others.get((root, identity))
        if known is None:
            return runtime_state.read(root, identity, mounted=self._mounted)
        if isinstance(known, UnreadableError):
            raise known
        return known

    @cached_property
    def _unplaced(self) -> list[Found]:
        """The containers that only the ledger knows."""
        found = [one for e in self._entries if (one := _of_ledger(e, self._mounted))]
        for one in found:
            self._names.identify(one)
        return found

    def living(self) -> list[Found]:
        """Return all containers that have processes."""
        return each_once([found for found in self.of_id(lambda _: True) if found.pid])

    def in_order(self) -> list[Found]:
        """Return all containers that have processes, sorted by id; of one id, ours is the last."""
        return sorted(self.living(), key=lambda one: (one.id, one.is_ours, one.state_root))

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

    def of_name(self, text: str) -> list[Found]:
        """Return the containers that an engine of root or this user calls `text`, also stopped."""
        living = self.living()  # shows further stores
        by_annotation = [found for found in living if found.name == text and not found.pod]
        return [*by_annotation, *self._of_stores(self._names.stored(), text)]

    def of_user(self, text: str) -> list[Found]:
        """Return the containers that an engine of another user calls `text`, also stopped."""
        found = self._of_stores(self._names.of_users(), text)
        self.trouble.update(self._names.trouble)
        return found

    def _of_stores(self, stored: Iterable[StoredContainer], text: str) -> list[Found]:
        kept = list(stored)
        named = [one for one in kept if one.is_named(text)]
        named = named or [one for one in kept if one.is_of_service(text)]
        return [found for one in named for found in self._states(one)]

    def _states(self, stored: StoredContainer) -> list[Found]:
        """Return a stored container as its runtimes know it, or stopped."""
        known = self.of_id(lambda identity: identity == stored.id)
        user = stored.user
        known = [found for found in known if (found.owner == user if user else found.is_ours)]
        return known or [container_names.stopped(stored)]

    def near(self, text: str) -> str:
        """Return a phrase with a few names of containers: that like `text`, or any."""
        names = {name_of(found) for found in self.living()}
        best = sorted(names, key=lambda name: (-_shared(name, text), name))
        if not best:
            if _DENIED in self.trouble.values():
                return "run as root: containers of other users are not visible"
            if not state.is_rootless():
                return "no container is running here"
            return "this user cannot see any running container here"
        alike = suggestion.nearest(text, best)
        best = list(dict.fromkeys([*([alike] if alike else []), *best]))
        return "there are " + ", ".join([*best[:_NEAR], *(["..."] if best[_NEAR:] else [])])


def name_of(found: Found) -> str:
    """Return a name that find() accepts: namespace/pod/container, the engine's name, or the id."""
    pod = [found.pod[key] for key in ("namespace", "pod", "container") if key in found.pod]
    return "/".join(pod) if len(pod) == _POD_WORDS and found.name else found.name or found.id


def each_once(candidates: list[Found]) -> list[Found]:
    """Return the candidates without a user's entry for a container that root's state has, too."""
    of_root = {(found.pid, found.started) for found in candidates if not found.owner and found.pid}
    return [f for f in candidates if not f.owner or (f.pid, f.started) not in of_root]


def _shared(one: str, other: str) -> int:
    """Return how many leading characters two names have in common."""
    return next(
        (n for n, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other))
    )


def _of_ledger(entry: dict[str, object], mounted: list[Mount]) -> Found | None:
    """Return the container of an entry that names no state root but the container's process."""
    pid, started, bundle = entry.get("pid"), entry.get("started"), entry.get("bundle")
    if entry["root"] or not isinstance(pid, int) or not isinstance(started, int):
        return None
    found = Found(str(entry["id"]), pid, started)
    try:
        with found.process() as process:
            found.status = runtime_state.status(process, mounted)
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
