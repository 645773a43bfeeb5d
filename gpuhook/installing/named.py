# SPDX-License-Identifier: Apache-2.0
"""What the containers of a host still name of an installation, in what engines keep of them."""

from __future__ import annotations

import glob
import os
import re
import stat
from dataclasses import dataclass

from gpuhook import files
from gpuhook.errors import GpuhookError
from gpuhook.installing.copying import PROGRAMS, VERSIONS
from gpuhook.installing.host import inside

_MAX = 16 << 20  # bytes
_TASKS = "io.containerd.runtime.v2.task/*/*"
# What engines keep of a container: the bundle of one that runs, and what a start is made from;
# `runtime` is the program that containerd's shim calls for exec, kill and delete.
BUNDLES = (
    f"/run/containerd/{_TASKS}/config.json",
    f"/run/containerd/{_TASKS}/runtime",
    f"/run/k3s/containerd/{_TASKS}/config.json",
    f"/run/k3s/containerd/{_TASKS}/runtime",
    f"/run/k0s/containerd/{_TASKS}/config.json",
    f"/run/k0s/containerd/{_TASKS}/runtime",
    f"/var/snap/microk8s/common/run/containerd/{_TASKS}/config.json",
    f"/var/snap/microk8s/common/run/containerd/{_TASKS}/runtime",
    f"/run/docker/containerd/daemon/{_TASKS}/config.json",
    f"/run/docker/containerd/daemon/{_TASKS}/runtime",
    "/run/containers/storage/overlay-containers/*/userdata/config.json",
    "/var/lib/containers/storage/overlay-containers/*/userdata/config.json",
    "/run/runc/*/state.json",
    "/run/containerd/runc/*/*/state.json",
    "/run/crun/*/status",
)


@dataclass(frozen=True, slots=True)
class Named:
    """The names of versions, and whether a program is named by the path that outlives them.

    `is_whole` is whether all files could be read: others may be named where not.
    """

    versions: frozenset[str] = frozenset()
    has_programs: bool = False
    is_whole: bool = True


def found(root: str, at: str) -> Named:
    """Return what the containers' files of a host name below its directory `at`."""
    pattern = re.compile(re.escape(f"{at}/{VERSIONS}/").encode() + rb"([0-9A-Za-z.+~-]+)/")
    programs = f"{at}/{PROGRAMS}/".encode()
    names: set[str] = set()
    has_programs, is_whole = False, True
    for place in BUNDLES:
        head, star, tail = place.partition("*")
        for path in glob.iglob(glob.escape(inside(root, head)) + f"/{star}{tail}"):
            content = _content(path)
            if content is None:
                is_whole = False
                continue
            names.update(name.decode() for name in pattern.findall(content))
            has_programs = has_programs or programs in content
    return Named(frozenset(names), has_programs, is_whole)


def _content(path: str) -> bytes | None:
    """Return what a file says: nothing if it is gone or is no file, None if it cannot be read."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):  # a link of the host means another file here
            return b""
        return files.read(path, _MAX)
    except (FileNotFoundError, NotADirectoryError):
        return b""  # its container has ended
    except (OSError, GpuhookError):
        return None
