# SPDX-License-Identifier: Apache-2.0
"""Where the device plugin finds a node: the roots of its files, for this process and on the host.

The plugin's container has the host's driver root at another path. The kubelet and CDI specs get the
paths on the host.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

_IN_POD = "KUBERNETES_SERVICE_HOST"  # set by the kubelet in every container


@dataclass(frozen=True, slots=True)
class Places:
    """The roots of the driver and of its device nodes, for this process and on the host."""

    driver: str = "/"
    dev: str = "/"
    host_driver: str = "/"
    host_dev: str = "/"

    def on_host(self, path: str) -> str:
        """Return the path on the host of a path below one of the roots; others are unchanged.

        Device nodes are below the dev root, even if that is in the driver root.
        """
        roots = [(self.dev, self.host_dev), (self.driver, self.host_driver)]
        if not is_below(path, joined(self.dev, "/dev")):
            roots.reverse()
        for here, there in roots:
            if is_below(path, here):
                return joined(there, path[len(here.rstrip("/")) :])
        return path

    def here(self, path: str) -> str | None:
        """Return the path for this process of a path on the host, None if it cannot see it.

        A container sees only the mounts of the host, below /driver-root or at the dev root. In a
        pod without either, its own files are not those of the host.
        """
        roots = [(self.dev, self.host_dev), (self.driver, self.host_driver)]
        if not is_below(path, joined(self.host_dev, "/dev")):
            roots.reverse()
        for here, there in roots:
            if is_below(path, there) and not (here == there and _IN_POD in os.environ):
                return joined(here, path[len(there.rstrip("/")) :])
        return None if _IN_POD in os.environ or self.driver != self.host_driver else path


@dataclass(frozen=True, slots=True)
class PluginPlace:
    """The node of the device plugin.

    `dev_root` is where an option sets it, None for the node's own /dev. `driver` has the roots of a
    vendor with driver files. `library` is the driver's library, None: it is searched, first in the
    search paths below the driver root.
    """

    host_root: str = "/"
    dev_root: str | None = None
    driver: Places = field(default_factory=Places)
    library: str | None = None
    library_search_paths: tuple[str, ...] = ()


def is_below(path: str, root: str) -> bool:
    """Return whether `path` is `root` or below it."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def joined(root: str, rest: str) -> str:
    """Return the path of `rest` below `root`."""
    return (root.rstrip("/") + "/" + rest.lstrip("/")).rstrip("/") or "/"
