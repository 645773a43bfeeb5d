# SPDX-License-Identifier: Apache-2.0
"""The driver root and the dev root that apply if no option names them."""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError
from gpuhook.host import console
from gpuhook.host.hot import settings

# The device plugin's container has these variables: see plugin_options.py.
_CONTAINER_VARIABLES = ("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT")


def driver_roots(
    driver_root: str | None,
    dev_root: str | None,
    *,
    is_here: bool = True,
    is_searched: bool = True,
    search_paths: tuple[str, ...] = (),
) -> tuple[str, str | None]:
    """Return the driver root and the dev root that apply if the options name none.

    The settings come first, then what `gpuhook node install` was called with, then the directories
    that have a driver. A dev root applies to the driver root of the same source: another driver
    has its own /dev. Without `is_searched` the last default is "/".
    """
    if driver_root is not None:
        return driver_root, dev_root
    if is_here:
        from gpuhook.host import installed_roots

        chosen = _settings()
        root, default_dev_root = chosen.driver_root, chosen.dev_root
        if not root:
            root, installed_dev_root = installed_roots.installed_roots()
            default_dev_root = default_dev_root or installed_dev_root
        dev_root = dev_root if dev_root is not None else default_dev_root or None
        if root:
            return root, dev_root
    return _root_with_driver(search_paths) if is_searched else "/", dev_root


def container_roots(host_root: str = "/") -> tuple[str | None, str | None]:
    """Return the driver root and the dev root of the device plugin's container, None elsewhere."""
    if not any(os.environ.get(name) for name in _CONTAINER_VARIABLES):
        return None, None
    from gpuhook.device_plugin.allocate import host_paths

    found = host_paths.environment_places(os.environ, host_root)
    return (found.driver, found.dev) if found else (None, None)


def _root_with_driver(search_paths: tuple[str, ...]) -> str:
    """Return the directory of this host that has a driver, "/" if none has one."""
    from gpuhook.vendors.catalogue import vendors

    found = [root for vendor in vendors() for root in vendor.driver_roots(search_paths)]
    if len(found) > 1:
        others = ", ".join(found[1:])
        console.warn(
            f"found a driver in {found[0]} and in {others}: using {found[0]}; set "
            "driver.root in the settings to choose another one"
        )
    return found[0] if found else "/"


def _settings() -> settings.Settings:
    """Return this node's settings, or the defaults with a warning if the file is broken."""
    try:
        if os.path.exists(settings.path()):
            from gpuhook.node import settings_file  # it loads YAML

            return settings_file.of_node()
        return settings.overridden(settings.Settings())
    except GpuhookError as error:
        console.warn(f"{error.message}: the default of driver.root applies")
        return settings.Settings()
