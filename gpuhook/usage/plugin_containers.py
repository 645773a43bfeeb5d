# SPDX-License-Identifier: Apache-2.0
"""Recognises the containers of device plugins, which have every GPU and use none.

Their mark is the kubelet's own directory of plugins, mounted from the host: no tenant has that, and
a container with it decides what the kubelet assigns to all others.
"""

from __future__ import annotations

import os

from gpuhook.device_plugin.kubelet import device_checkpoint
from gpuhook.usage import container_sharing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def is_recorded_plugin(entry: Mapping[str, Any], kubelet_root: str) -> bool:
    """Return whether the container of a ledger entry is a device plugin, by its config.json."""
    requests_all = "all" in (entry.get("requested") or ())
    return requests_all and is_plugin(container_sharing.config(entry), kubelet_root)


def is_plugin(spec: Mapping[str, Any], kubelet_root: str) -> bool:
    """Return whether a config.json is that of a device plugin; `kubelet_root` is "" if unknown.

    The whole source of a mount is compared: a tenant's volume is below the directory of the pods.
    Links in it are not followed: a tenant can replace the directory behind its mount by a link.
    """
    roots = (kubelet_root, *device_checkpoint.ROOTS)
    named = [os.path.join(root, device_checkpoint.PLUGINS) for root in roots if root]
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
