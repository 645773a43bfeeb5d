# SPDX-License-Identifier: Apache-2.0
"""Devices that a container gets in addition to its GPUs: IMEX channels, switches, MIG management.

Loaded only for a container that requests such a device. A spec of the kind applies if the node has
one; else the device is looked up on the node itself.
"""

from __future__ import annotations

import os

from gpuhook.cdi.hot.compiled_spec import Compiled
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import state
from gpuhook.request import extra_requests as extras
from gpuhook.request import parse, policy
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.hot.extras import live_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.cdi.hot.registry import Registry
    from gpuhook.host.hot.settings import Settings
    from gpuhook.request.extra_requests import Extra
    from gpuhook.vendors.nvidia.hot.extras.live_devices import DeviceRoots

_NO_FILE = "the node itself"  # in the place of a spec file's path


class LiveSpec(Compiled):
    """The current devices of one kind, in the place of a compiled spec."""

    __slots__ = ("_roots",)

    def __init__(self, kind: str, roots: DeviceRoots) -> None:
        super().__init__(_NO_FILE, b"\n{}\n")
        self.kind = kind
        self._roots = roots

    def device(self, name: str) -> ContainerEdits | None:
        """Return the edits of a device; raises the fault of what this node lacks."""
        if self.kind == vocabulary.IMEX_KIND:
            return (
                live_devices.channels(self._roots)
                if name == live_devices.EVERY
                else live_devices.channel(name, self._roots)
            )
        if self.kind == vocabulary.MIG_KIND:
            return live_devices.management(name, self._roots)
        return live_devices.whole(self.kind, self._roots) if name == live_devices.EVERY else None

    def names(self) -> list[str]:
        """Return the names of the devices; `all` is one of them for kinds that have it."""
        return (
            [*live_devices.MANAGEMENT_NAMES]
            if self.kind == vocabulary.MIG_KIND
            else [live_devices.EVERY]
        )


def extra_requests(spec: dict[str, Any], settings: Settings) -> list[Extra]:
    """Return the devices that a container requests in addition to its GPUs, judged by policy.

    Raises GH1036 for an invalid IMEX channel, and the faults of extra_requests.judged().
    """
    if not parse.has_extras(spec, vocabulary.VOCABULARY):
        return []
    found = extras.judged(spec, vocabulary.VOCABULARY, settings)
    for one in found:
        for name in one.names if one.is_list and one.result == policy.WON else ():
            live_devices.require_channel(name.partition("=")[2], one.where)
    return found


def extended_registry(found: Registry, names: Sequence[str], roots: DeviceRoots) -> Registry:
    """Return a registry with the current devices of the kinds of `names`; `roots` locates them.

    Raises the faults of require_device() for missing devices.
    """
    named = [name for name in names if vocabulary.is_extra(name)]
    kinds = list(dict.fromkeys(name.partition("=")[0] for name in named))
    found = with_live_kinds(found, kinds, roots)
    for name in named:
        require_device(found, name)
    return found


def with_live_kinds(registry: Registry, kinds: list[str], roots: DeviceRoots) -> Registry:
    """Return `registry` with a LiveSpec for each of `kinds` that it has no spec of."""
    missing = [kind for kind in kinds if not _has(registry, kind)]
    return registry.over([LiveSpec(kind, roots) for kind in missing]) if missing else registry


def _has(registry: Registry, kind: str) -> bool:
    try:
        return bool(registry.kind(kind))
    except GpuhookError:
        return False


def require_device(registry: Registry, name: str) -> None:
    """Raise the fault of a device of these kinds that is missing: `name` is qualified.

    GH1042 means that the node's own spec of the kind lacks it; such a spec wins over the node.
    """
    kind, _, device = name.partition("=")
    if device in ("none", live_devices.EVERY):
        return
    try:
        registry.device(name)
    except GpuhookError as error:
        specs = registry.kind(kind)
        if error.code != "GH1102" or isinstance(specs[0], LiveSpec):
            raise
        mode, paths = vocabulary.EXTRA_KINDS[kind], ", ".join(spec.path for spec in specs)
        raise fault("GH1042", name=name, files=paths, mode=mode) from error


def find_roots(
    found: Registry, kind: str, driver_root: str = "", dev_root: str = ""
) -> DeviceRoots:
    """Return the roots of the node: the named ones, else those that specs of `kind` imply."""
    driver, dev = driver_root.rstrip("/"), dev_root
    if driver and not dev and os.path.exists(os.path.join(driver, "dev/nvidiactl")):
        dev = driver
    try:
        specs = found.kind(kind)
    except GpuhookError:
        specs = []  # no spec of GPUs
    for spec in specs:
        nodes, mounts = spec.edits.get("deviceNodes") or (), spec.edits.get("mounts") or ()
        dev = dev or _root_of((one["path"], one.get("hostPath")) for one in nodes)
        driver = driver or _root_of((one["containerPath"], one["hostPath"]) for one in mounts)
    return live_devices.DeviceRoots(dev or "/", driver or "/", state.host_root())


def _root_of(pairs: Iterable[tuple[str, str | None]]) -> str:
    """Return the root below which the host has the files of containers, "" if none is known."""
    for path, source in pairs:
        if source and source != path and source.endswith(path):
            return source[: -len(path)]
    return ""
