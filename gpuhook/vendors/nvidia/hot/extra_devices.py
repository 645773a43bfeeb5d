# SPDX-License-Identifier: Apache-2.0
"""What a container gets in addition to its GPUs: IMEX channels, switches, administration of MIG.

Loaded only for a container that asks for such a thing. A spec of the kind counts where the node has
one; else the node itself is looked at.
"""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import state
from gpuhook.request import extra_requests as extras
from gpuhook.request import parse, policy
from gpuhook.vendors.nvidia.hot import live_devices, vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from gpuhook.cdi.hot.registry import Registry
    from gpuhook.host.hot.settings import Settings
    from gpuhook.request.extra_requests import Extra
    from gpuhook.vendors.nvidia.hot.live_devices import DeviceRoots


def extra_requests(spec: dict[str, Any], settings: Settings) -> list[Extra]:
    """Return what a container requests in addition to its GPUs, judged by policy.

    Raises GH1036 for what is no IMEX channel, and what extra_requests.judged raises.
    """
    if not parse.has_extras(spec, vocabulary.VOCABULARY):
        return []
    found = extras.judged(spec, vocabulary.VOCABULARY, settings)
    for one in found:
        for name in one.names if one.is_list and one.result == policy.WON else ():
            live_devices.require_channel(name.partition("=")[2], one.where)
    return found


def extended_registry(found: Registry, names: Sequence[str], roots: DeviceRoots) -> Registry:
    """Return a registry with what the node, its parts in `roots`, shows of the kinds of `names`.

    Raises what live_devices.require_device() raises for those that it lacks.
    """
    named = [name for name in names if vocabulary.is_extra(name)]
    kinds = list(dict.fromkeys(name.partition("=")[0] for name in named))
    found = live_devices.beside(found, kinds, roots)
    for name in named:
        live_devices.require_device(found, name)
    return found


def find_roots(
    found: Registry, kind: str, driver_root: str = "", dev_root: str = ""
) -> DeviceRoots:
    """Return where the node's parts are: by the named roots, else as specs of `kind` have them."""
    driver, dev = driver_root.rstrip("/"), dev_root
    if driver and not dev and os.path.exists(os.path.join(driver, "dev/nvidiactl")):
        dev = driver
    try:
        specs = found.kind(kind)
    except GpuhookError:
        specs = []  # none of the GPUs'
    for spec in specs:
        nodes, mounts = spec.edits.get("deviceNodes") or (), spec.edits.get("mounts") or ()
        dev = dev or _root_of((one["path"], one.get("hostPath")) for one in nodes)
        driver = driver or _root_of((one["containerPath"], one["hostPath"]) for one in mounts)
    return live_devices.DeviceRoots(dev or "/", driver or "/", state.host_root())


def _root_of(pairs: Iterable[tuple[str, str | None]]) -> str:
    """Return the root in which hosts have what containers find at a path, "" if none is known."""
    for path, source in pairs:
        if source and source != path and source.endswith(path):
            return source[: -len(path)]
    return ""
