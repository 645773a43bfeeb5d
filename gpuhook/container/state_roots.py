# SPDX-License-Identifier: Apache-2.0
"""Where the low-level runtimes of a node keep their state: a directory per container.

WARM. The engine chooses the state root of its runtime, and nothing on the node lists them.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# Where runtimes keep their state: their own defaults (podman and CRI-O use these), containerd's
# shim, also under k3s, rke2 and microk8s, one directory per namespace, and dockerd's, a directory
# per runtime with one per namespace below. `*` stands for a whole name or its end.
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


def present() -> Iterator[str]:
    """Yield the state roots that are there, some by several names."""
    for pattern in PLACES:
        yield from _expanded(pattern)
        yield from _expanded("/var" + pattern)
    own = os.environ.get("XDG_RUNTIME_DIR")
    if own:
        for pattern in _OF_A_USER:
            yield from _expanded(os.path.join(own, pattern))


def _expanded(pattern: str) -> list[str]:
    """Return the directories that `pattern` means; one that cannot be listed stands for itself."""
    found = [""]
    for part in pattern.split("/")[1:]:
        if part.endswith("*"):
            found = [path for directory in found for path in _begun(directory, part[:-1])]
        else:
            found = [f"{directory}/{part}" for directory in found]
    return [path for path in found if os.path.lexists(path)]


def _begun(directory: str, start: str) -> list[str]:
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return [directory]
    return [f"{directory}/{name}" for name in sorted(names) if name.startswith(start)]
