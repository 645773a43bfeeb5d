# SPDX-License-Identifier: Apache-2.0
"""The directories in which low-level runtimes keep their state, one directory per container.

The engine chooses the state root of its runtime, and nothing on the node lists them.
"""

from __future__ import annotations

import os

from gpuhook.host.hot import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# The state roots: the runtimes' own defaults (podman and CRI-O use these), containerd's
# shim, also under k3s, rke2 and microk8s, one directory per namespace, and dockerd's, a directory
# per runtime with one per namespace below. `*` matches a whole name or its end.
PLACES = (
    "/run/runc",
    "/run/crun",
    "/run/containerd/runc/*",
    "/run/docker/runtime-*/*",
    "/run/snap.docker/runtime-*/*",
    "/run/user/*/runc",
    "/run/user/*/crun",
    "/run/user/*/docker/runtime-*/*",
)
_OF_A_USER = ("runc", "crun", "docker/runtime-*/*")  # below $XDG_RUNTIME_DIR
_USERS = "/run/user"


def user_of(path: str) -> int:
    """Return the user below whose runtime directory a path is, by its name alone; 0 for none.

    Its content belongs to that user, whatever owner the file system shows: users can mount one.
    """
    _, found, rest = path.partition(_USERS + "/")
    user = rest.partition("/")[0]
    return int(user) if found and user.isdecimal() else 0


def is_of_another(path: str) -> bool:
    """Return whether a path is another user's, for the host's root: see rootless_state.py."""
    return user_of(path) not in (0, os.geteuid()) and not state.is_rootless()


def other_users() -> list[int]:
    """Return the users with runtime directories, for the host's root; [] for other users."""
    if state.is_rootless():
        return []
    try:
        names = os.listdir(_USERS)
    except OSError:
        return []
    users = sorted(int(name) for name in names if name.isdecimal())
    return [user for user in users if user != os.geteuid()]


def directory(user: int) -> str:
    return f"{_USERS}/{user}"


def of_user(user: int) -> list[str]:
    """Return the patterns of a user's state roots."""
    return [f"{directory(user)}/{pattern}" for pattern in _OF_A_USER]


def real(root: str) -> str:
    """Return a state root with links resolved, "" for none; another user's is left as it is."""
    return os.path.realpath(root) if root and not is_of_another(root) else root


def present() -> Iterator[str]:
    """Yield the existing state roots, some by several names, without other users'."""
    for pattern in PLACES:
        yield from _expanded(pattern)
        yield from _expanded("/var" + pattern)
    own = os.environ.get("XDG_RUNTIME_DIR")
    if own:
        for pattern in _OF_A_USER:
            yield from _expanded(os.path.join(own, pattern))


def _expanded(pattern: str) -> list[str]:
    """Return the directories that `pattern` matches; one that cannot be listed as itself."""
    found = [""]
    for part in pattern.split("/")[1:]:
        if part.endswith("*"):
            found = [path for directory in found for path in _names(directory, part[:-1])]
        else:
            found = [f"{directory}/{part}" for directory in found]
        found = [path for path in found if not is_of_another(path)]
    return [path for path in found if os.path.lexists(path)]


def _names(directory: str, start: str) -> list[str]:
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return [directory]
    return [f"{directory}/{name}" for name in sorted(names) if name.startswith(start)]
