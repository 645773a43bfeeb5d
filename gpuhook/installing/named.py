# SPDX-License-Identifier: Apache-2.0
"""Which installed versions the containers of a host still name, in what engines keep of them."""

from __future__ import annotations

import glob
import re

from gpuhook.installing.copying import VERSIONS
from gpuhook.installing.host import inside

_MAX = 16 << 20  # bytes
# What engines keep of a container: the bundle of one that runs, and what a start is made from.
BUNDLES = (
    "/run/containerd/io.containerd.runtime.v2.task/*/*/config.json",
    "/run/k3s/containerd/io.containerd.runtime.v2.task/*/*/config.json",
    "/run/k0s/containerd/io.containerd.runtime.v2.task/*/*/config.json",
    "/var/snap/microk8s/common/run/containerd/io.containerd.runtime.v2.task/*/*/config.json",
    "/run/docker/containerd/daemon/io.containerd.runtime.v2.task/*/*/config.json",
    "/run/containers/storage/overlay-containers/*/userdata/config.json",
    "/var/lib/containers/storage/overlay-containers/*/userdata/config.json",
    "/run/runc/*/state.json",
    "/run/containerd/runc/*/*/state.json",
    "/run/crun/*/status",
)


def versions(root: str, at: str) -> frozenset[str]:
    """Return the names of versions below the host's `at` that a container's files name.

    A file that cannot be read names nothing, and one that is too large is not read to its end.
    """
    pattern = re.compile(re.escape(f"{at}/{VERSIONS}/").encode() + rb"([0-9A-Za-z.+~-]+)/")
    found: set[str] = set()
    for place in BUNDLES:
        head, star, tail = place.partition("*")
        for path in glob.iglob(glob.escape(inside(root, head)) + f"/{star}{tail}"):
            found.update(name.decode() for name in pattern.findall(_content(path)))
    return frozenset(found)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MAX)
    except OSError:
        return b""
