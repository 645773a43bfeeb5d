# SPDX-License-Identifier: Apache-2.0
"""The paths of the driver and its device nodes, for this process and on the host.

The plugin's container has the host's driver root at /driver-root. The kubelet and CDI specs get the
paths on the host.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from gpuhook.device_plugin.config.configuration import Flags, PluginFlags
from gpuhook.device_plugin.config.overrides import read_overrides
from gpuhook.vendors.nvidia import discover

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.vendors.nvidia.inventory.inventory import Node

_CONTAINER_DRIVER_ROOT = "flags.plugin.containerDriverRoot"
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
        if not is_below(path, _joined(self.dev, "/dev")):
            roots.reverse()
        for here, there in roots:
            if is_below(path, here):
                return _joined(there, path[len(here.rstrip("/")) :])
        return path

    def here(self, path: str) -> str | None:
        """Return the path for this process of a path on the host, None if it cannot see it.

        A container sees only the mounts of the host, below /driver-root or at the dev root. In a
        pod without either, its own files are not those of the host.
        """
        roots = [(self.dev, self.host_dev), (self.driver, self.host_driver)]
        if not is_below(path, _joined(self.host_dev, "/dev")):
            roots.reverse()
        for here, there in roots:
            if is_below(path, there) and not (here == there and _IN_POD in os.environ):
                return _joined(here, path[len(there.rstrip("/")) :])
        return None if _IN_POD in os.environ or self.driver != self.host_driver else path


def places(
    flags: Flags, host_root: str = "/", driver_here: str | None = None, dev_here: str | None = None
) -> Places:
    """Return the roots of this node for the flags.

    The driver root is at `driver_here`, else at flags.plugin.container_driver_root if that
    directory exists, else, outside a container, at its path on the host. Without a dev root, in the
    flags or `dev_here`, the nodes are those of the driver root, or of `host_root` if it has none
    (discover.roots).
    """
    host_driver = os.path.abspath(flags.driver_root)
    container = flags.plugin.container_driver_root
    driver = driver_here or (container if os.path.isdir(container) else flags.driver_root)
    is_elsewhere = os.path.abspath(driver) != host_driver
    dev = dev_here
    if dev is None and flags.dev_root is not None:
        dev = os.path.abspath(flags.dev_root)
        if is_elsewhere and is_below(dev, host_driver):
            dev = _joined(driver, dev[len(host_driver.rstrip("/")) :])
    where = discover.roots(driver, dev, host_root)
    host_dev = host_driver if where.dev == where.driver else where.dev
    if flags.dev_root is not None:
        host_dev = os.path.abspath(flags.dev_root)
    return Places(where.driver, where.dev, host_driver, host_dev)


def environment_places(environ: Mapping[str, str], host_root: str = "/") -> Places | None:
    """Return the roots that the variables of the plugin's container set.

    Returns None if no variable sets the container's driver root, or the directory is missing.
    """
    overrides = read_overrides({}, environ).overrides
    here = overrides.get(_CONTAINER_DRIVER_ROOT)
    if here is None or not os.path.isdir(str(here.value)):
        return None
    root, dev_root = overrides.get("flags.nvidiaDriverRoot"), overrides.get("flags.nvidiaDevRoot")
    flags = Flags(
        driver_root=str(root.value) if root else Flags().driver_root,
        dev_root=str(dev_root.value) if dev_root else None,
        plugin=PluginFlags(container_driver_root=str(here.value)),
    )
    return places(flags, host_root)


def at_host(node: Node, where: Places) -> Node:
    """Return `node` with paths on the host in place of those for this process."""
    if (where.driver, where.dev) == (where.host_driver, where.host_dev):
        return node
    return replace(
        node,
        driver_root=where.host_driver,
        dev_root=where.host_dev,
        device_nodes=tuple(
            replace(device, host_path=where.on_host(device.host_path))
            for device in node.device_nodes
        ),
        files=tuple(replace(file, host_path=where.on_host(file.host_path)) for file in node.files),
    )


def is_below(path: str, root: str) -> bool:
    """Return whether `path` is `root` or below it."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def _joined(root: str, rest: str) -> str:
    return (root.rstrip("/") + "/" + rest.lstrip("/")).rstrip("/") or "/"
