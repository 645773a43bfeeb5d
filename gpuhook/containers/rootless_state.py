# SPDX-License-Identifier: Apache-2.0
"""The containers of other users, as their runtimes' state in /run/user describes them.

And the names in the stores of their engines. A user controls both: files of any size, links, and
file systems that never answer (FUSE with allow_other). So a child process reads them, with bounds
in bytes and time. It follows no link, and does not enter what the kernel lists as FUSE or NFS.
"""

from __future__ import annotations

import os
import pwd
import time
from dataclasses import replace

from gpuhook.containers.hot import ledger
from gpuhook.containers.stores import docker_store, libpod
from gpuhook.containers.stores.store_files import UserFiles
from gpuhook.containers.warm import runtime_state, state_roots
from gpuhook.containers.warm.runtime_state import StateBounds, UnreadableError
from gpuhook.host.hot import files
from gpuhook.kernel import mountinfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from gpuhook.containers.stores.stored_container import StoredContainer
    from gpuhook.containers.warm.runtime_state import Found
    from gpuhook.host.worker import Worker
    from gpuhook.kernel.mountinfo import Mount

_SECONDS = 2.0  # for all users
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SILENT_FOR = 60.0  # seconds until the state of a user that did not answer is read again
_silent: dict[tuple[str, int], float] = {}  # the end of that time, by method and user


class Containers:
    """The containers of other users.

    `states` has the container or the error by (state root, id), `looked` the state roots that were
    read, and `trouble` a reason for each path that was not.
    """

    def __init__(self) -> None:
        self.states: dict[tuple[str, str], Found | UnreadableError] = {}
        self.looked: list[str] = []
        self.trouble: dict[str, str] = {}

    def add(self, other: Containers) -> None:
        """Add the containers of another user."""
        self.states.update(other.states)
        self.looked += other.looked
        self.trouble.update(other.trouble)


def look(roots: Iterable[str] = ()) -> Containers:
    """Return the containers of all other users; also looks into these roots of theirs."""
    found = Containers()
    places = {user: state_roots.of_user(user) for user in state_roots.other_users()}
    for root in roots:
        user = state_roots.user_of(root)
        path = os.path.abspath(root)
        if path.startswith("/var/run/"):  # a link, and none is followed
            path = path[len("/var") :]
        patterns = places.setdefault(user, state_roots.of_user(user))
        if path not in patterns:
            patterns.append(path)
    if places:
        readable = dict(_without_remote(places, found))
        for one in _answers("read", readable, found):
            found.add(one)
    return found


def _without_remote(
    places: dict[int, list[str]], found: Containers
) -> Iterator[tuple[int, list[str]]]:
    """Yield the users without a state root that is on FUSE or NFS, or contains such a mount."""
    mounts = mountinfo.parse(files.read("/proc/self/mountinfo", mountinfo.MAX_BYTES))
    remote = [mount for mount in mounts if mount.is_remote]
    for user, patterns in places.items():
        inside = [mount for mount in remote if any(_touches(mount, path) for path in patterns)]
        if not inside:
            yield user, patterns
        for mount in inside:
            found.trouble[mount.target] = f"{mount.fstype}, which may never answer"


def _touches(mount: Mount, pattern: str) -> bool:
    """Return whether a walk to a state root, or into it, can enter a mount."""
    fixed = pattern.partition("*")[0].rstrip("/")
    return mount.is_over(fixed) or mount.target.startswith(fixed)


def stored() -> tuple[list[StoredContainer], dict[str, str]]:
    """Return the containers in the stores of other users' engines, and why others are not read."""
    found = Containers()
    places = dict(_without_remote(dict(_homes()), found))
    containers = [one for answer in _answers("stored", places, found) for one in answer]
    return containers, found.trouble


def _homes() -> Iterator[tuple[int, list[str]]]:
    """Yield other users, with the places of the stores of their Docker and podman."""
    for user in state_roots.other_users():
        try:
            home = pwd.getpwuid(user).pw_dir
        except KeyError:
            continue
        yield user, [f"{home}/{place}" for place in (docker_store.OF_A_USER, libpod.OF_A_USER)]


def _answers(method: str, places: dict[int, list[str]], found: Containers) -> Iterator[Any]:
    """Yield the answers on one user after another; one without an answer leaves time to the others.

    The users without an answer are in `found.trouble`, with the reason.
    """
    from gpuhook.host.worker import NoAnswerError

    end = time.monotonic() + _SECONDS
    worker: Worker | None = None
    for user, paths in places.items():
        now = time.monotonic()
        if now < _silent.get((method, user), now):
            reason = "it did not answer recently"
        elif now >= end:
            reason = f"the states of other users took the {_SECONDS:g} seconds"
        else:
            try:
                worker = worker or _started()
                worker.ask(method, user, paths)
                yield worker.answer((end - now) / 2)
                continue
            except NoAnswerError as error:
                reason = error.reason
                _silent[method, user] = now + _SILENT_FOR
                _end(worker)
                worker = None
        found.trouble[state_roots.directory(user)] = reason
    _end(worker)


def _started() -> Worker:
    from gpuhook.host.worker import Worker  # few nodes have users with containers

    return Worker(_Reader, _SECONDS)


def _end(worker: Worker | None) -> None:
    if worker is not None:
        worker.kill()
        worker.close()


class _Reader:
    """Reads the state of users, in the child."""

    def stored(self, user: int, places: Sequence[str]) -> list[StoredContainer]:
        """Return the containers of Docker and podman, by the places of their stores."""
        docker, podman = places
        try:
            files = UserFiles(user, docker.removesuffix(f"/{docker_store.OF_A_USER}"))
        except OSError:
            return []
        found = [*docker_store.containers(files, docker), *libpod.containers(files, podman)]
        return [replace(one, user=user) for one in found]

    def read(self, user: int, patterns: Sequence[str]) -> Containers:  # noqa: ARG002 # as stored()
        """Return the content of the state roots of a user."""
        found = Containers()
        bounds = StateBounds()
        for pattern in patterns:
            for root, fd in _opened(pattern, found):
                try:
                    _read_root(root, fd, bounds, found)
                finally:
                    os.close(fd)
        return found


def _opened(pattern: str, found: Containers) -> list[tuple[str, int]]:
    """Return the directories that a pattern matches, with a descriptor (the caller's) of each."""
    places = [("", os.open("/", _DIRECTORY))]
    for part in pattern.split("/")[1:]:
        entered = []
        for path, fd in places:
            for name in _names(fd, part[:-1]) if part.endswith("*") else [part]:
                try:
                    entered.append((f"{path}/{name}", os.open(name, _DIRECTORY, dir_fd=fd)))
                except FileNotFoundError:
                    continue
                except OSError as error:
                    found.trouble[f"{path}/{name}"] = error.strerror or str(error)
            os.close(fd)
        places = entered
    return places


def _names(fd: int, start: str) -> list[str]:
    return [name for name in sorted(os.listdir(fd)) if name.startswith(start)]


def _read_root(root: str, fd: int, bounds: StateBounds, found: Containers) -> None:
    found.looked.append(root)
    for name in sorted(os.listdir(fd)):
        if not ledger.is_id(name):
            continue
        try:
            found.states[root, name] = runtime_state.read(root, name, fd, bounds)
        except UnreadableError as error:
            found.states[root, name] = error
