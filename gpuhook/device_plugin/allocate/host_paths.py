# SPDX-License-Identifier: Apache-2.0
"""The paths of the driver and its device nodes, for this process and on the host.

The plugin's container has the host's driver root at /driver-root. The kubelet and CDI specs get the
paths on the host.
"""

from __future__ import annotations

import os

from gpuhook.device_plugin.config.configuration import Flags, PluginFlags
from gpuhook.device_plugin.config.overrides import read_overrides
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.plugin_place import Places, is_below, joined

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_CONTAINER_DRIVER_ROOT = "flags.plugin.containerDriverRoot"


def places(
    flags: Flags, host_root: str = "/", driver_here: str | None = None, dev_here: str | None = None
) -> Places:
    """Return the roots of this node for the flags.

    The driver root is at `driver_here`, else at flags.plugin.container_driver_root if that
    directory exists, else, outside a container, at its path on the host. Without a dev root, in the
    flags or `dev_here`, the nodes are those of the driver root, or of `host_root` if it has none.
    """
    host_driver = os.path.abspath(flags.driver_root)
    container = flags.plugin.container_driver_root
    chosen = driver_here or (container if os.path.isdir(container) else flags.driver_root)
    driver = os.path.abspath(chosen)
    is_elsewhere = driver != host_driver
    dev = dev_here
    if dev is None and flags.dev_root is not None:
        dev = os.path.abspath(flags.dev_root)
        if is_elsewhere and is_below(dev, host_driver):
            dev = joined(driver, dev[len(host_driver.rstrip("/")) :])
    if dev is None:
        with_files = (vendor for vendor in vendors() if vendor.traces.HAS_FILES)
        has_nodes = any(vendor.holds_nodes(driver) for vendor in with_files)
        dev = driver if has_nodes else host_root
    dev = os.path.abspath(dev)
    host_dev = host_driver if dev == driver else dev
    if flags.dev_root is not None:
        host_dev = os.path.abspath(flags.dev_root)
    return Places(driver, dev, host_driver, host_dev)


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
