# SPDX-License-Identifier: Apache-2.0
"""The variables, mounts and nodes that an interposer adds to containers of a shared device.

An interposer is a library between a container's programs and the driver, such as nvshare's or
HAMi's. gpuhook does not include one, and applies only its configuration.
"""

from __future__ import annotations

import os
from typing import TypeVar

from gpuhook.device_plugin.allocate import memory_grants
from gpuhook.device_plugin.allocate.container_allocation import (
    AllocatedMount,
    Allocation,
    DeviceSpec,
)
from gpuhook.errors import fault
from gpuhook.request.memory_request import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuhook.device_plugin.config.gpuhook_section import Interposer
    from gpuhook.device_plugin.offer.offered_devices import Resource
    from gpuhook.vendors.plugin_place import Places

T = TypeVar("T")
_LIMITS = ("{limitMiB}", "{limitBytes}")


def interposer_edits(
    resource: Resource, counts: Mapping[str, int], interposers: tuple[Interposer, ...]
) -> Allocation:
    """Return the edits of the interposers of a container's devices.

    `counts` has the number of its units by device UUID. Raises GH1836 for an unknown interposer,
    GH1838 if two devices of the container set one variable or mount to two values, GH1839 for the
    placeholder of a limit without a limit.
    """
    known = {interposer.name: interposer for interposer in interposers}
    envs: dict[str, str] = {}
    mounts: dict[str, AllocatedMount] = {}
    nodes: dict[str, DeviceSpec] = {}
    for uuid, name in _named(resource, counts).items():
        if name not in known:
            raise fault("GH1836", name=name, resource=resource.name)
        placeholders = _Placeholders(name, resource, counts, uuid)
        edits = known[name].edits
        for variable, value in edits.env:
            placeholders.enter(envs, variable, placeholders.fill(value))
        for one in edits.mounts:
            host_path = placeholders.fill(one.host_path)
            made = AllocatedMount(one.container_path, host_path, one.read_only)
            placeholders.enter(mounts, one.container_path, made)
        paths = [node.path for node in edits.device_nodes]
        nodes |= {path: DeviceSpec(path, path) for path in paths}
    return Allocation(envs=envs, mounts=tuple(mounts.values()), devices=tuple(nodes.values()))


def require(resource: Resource, uuids: Iterable[str], missing: Mapping[str, str]) -> None:
    """Raise GH1837 if an interposer of these devices is in `missing`, names and paths."""
    for name in _named(resource, uuids).values():
        if name in missing:
            raise fault("GH1837", name=name, resource=resource.name, path=missing[name])


def missing(
    resources: Iterable[Resource], interposers: tuple[Interposer, ...], places: Places
) -> dict[str, str]:
    """Return the first missing path of each used interposer, by name.

    Only paths that this process can see are checked. For a path with placeholders, that is the
    directory before the first of them.
    """
    used = {name for one in resources for name in _named(one, one.entries).values()}
    found: dict[str, str] = {}
    for interposer in interposers:
        if interposer.name not in used:
            continue
        edits = interposer.edits
        paths = [mount.host_path for mount in edits.mounts]
        paths += [node.path for node in edits.device_nodes]
        for path in paths:
            here = places.here(_without_placeholders(path))
            if here is not None and not os.path.exists(here):
                found.setdefault(interposer.name, path)
    return found


def _without_placeholders(path: str) -> str:
    before, brace, _ = path.partition("{")
    return os.path.dirname(before) if brace else path


def _named(resource: Resource, uuids: Iterable[str]) -> dict[str, str]:
    """Return the names of interposers by device UUID."""
    entries = {uuid: resource.entries.get(uuid) for uuid in uuids}
    return {uuid: entry.interposer for uuid, entry in entries.items() if entry and entry.interposer}


class _Placeholders:
    """The values of one device for the placeholders of its interposer."""

    def __init__(self, name: str, resource: Resource, counts: Mapping[str, int], uuid: str) -> None:
        self._name = name
        self._resource = resource
        self._uuid = uuid
        self._count = len(counts)
        device = next(device for device in resource.devices if device.uuid == uuid)
        replicas = str(len(resource.index.ids[uuid]))
        self._values = {"{uuid}": uuid, "{index}": device.index, "{replicas}": replicas}
        for limit in memory_grants.limits(resource, counts):
            if limit.device == uuid:
                self._values["{limitMiB}"] = str(limit.hard // MIB)
                self._values["{limitBytes}"] = str(limit.hard)

    def fill(self, text: str) -> str:
        """Return `text` with placeholders replaced by their values; raises GH1839."""
        for placeholder in _LIMITS:
            if placeholder in text and placeholder not in self._values:
                facts = {"name": self._name, "resource": self._resource.name, "uuid": self._uuid}
                raise fault("GH1839", placeholder=placeholder, **facts)
        for placeholder, value in self._values.items():
            text = text.replace(placeholder, value)
        return text

    def enter(self, into: dict[str, T], key: str, value: T) -> None:
        """Set the value of one device; raises GH1838 if another device set another value."""
        if into.setdefault(key, value) != value:
            name = self._resource.name
            raise fault("GH1838", name=self._name, resource=name, key=key, count=self._count)
