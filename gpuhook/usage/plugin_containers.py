# SPDX-License-Identifier: Apache-2.0
"""The containers of device plugins, which have every GPU and use none.

A plugin is recognised by what no tenant has: the host's own directory of the kubelet in which
plugins register, mounted into it. A container with this mount decides what the kubelet assigns to
all others.
"""

from __future__ import annotations

import os

from gpuhook.usage import container_sharing, kubelet_units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_DIRECTORY = "device-plugins"
_ALL = "all"


def is_recorded_plugin(entry: Mapping[str, Any], kubelet_root: str) -> bool:
    """Return whether a ledger entry is of a device plugin, as its config.json describes it."""
    asks_for_all = _ALL in (entry.get("requested") or ())
    return asks_for_all and is_plugin(container_sharing.config(dict(entry)), kubelet_root)


def is_plugin(spec: Mapping[str, Any], kubelet_root: str) -> bool:
    """Return whether a config.json is that of a device plugin; `kubelet_root` "" is unknown.

    The source of a mount is compared as a whole: a volume of a tenant is below the pods' directory.
    Links in it are not followed: a tenant can replace the directory behind its mount by a link.
    """
    named = [
        os.path.join(root, _DIRECTORY) for root in (kubelet_root, *kubelet_units.ROOTS) if root
    ]
    places = {os.path.abspath(path) for path in named} | {os.path.realpath(path) for path in named}
    mounts = spec.get("mounts")
    sources = (
        mount.get("source")
        for mount in (mounts if isinstance(mounts, list) else ())
        if isinstance(mount, dict)
    )
    return any(
        isinstance(source, str) and os.path.isabs(source) and os.path.normpath(source) in places
        for source in sources
    )
