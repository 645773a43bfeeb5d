# SPDX-License-Identifier: Apache-2.0
"""The GPUs of this node that claims of Dynamic Resource Allocation have.

They are in the checkpoints of gpuhook's DRA drivers, which also have the claims that are about to
be prepared. The plugin assigns such a GPU to no container: it would have two owners that do not
know of each other. Only a time-sliced replica and a time-sliced share, both without a memory limit,
can be on one GPU: neither promises anything that the other takes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.device_plugin.allocate.allocate import units_of
from gpuhook.device_plugin.config.sharing_section import TIME_SLICING
from gpuhook.device_plugin.health import recovery_evidence
from gpuhook.device_plugin.triggers import Reason
from gpuhook.errors import GpuhookError, fault
from gpuhook.host import documents
from gpuhook.host.hot import files
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from gpuhook.device_plugin.offer.offered_devices import Device, Resource
    from gpuhook.device_plugin.triggers import Triggers

CHECKPOINT = "gpuhook-claims.json"  # in the directory of a driver
_MAX_SIZE = 256 << 20


@dataclass(frozen=True, slots=True)
class ClaimedGpu:
    """A device that a claim has. `gpu` is the UUID of the GPU of an instance, else "".

    `is_unlimited_share`: the claim has a share of its time, and no limit of memory.
    """

    claim: str  # "namespace/name"
    uuid: str
    gpu: str = ""
    is_unlimited_share: bool = False

    def overlaps(self, device: Device) -> bool:
        """Return whether the plugin's device is the claim's, a part of it, or contains it."""
        return device.uuid in (self.uuid, self.gpu) or device.gpu == self.uuid

    @property
    def reason(self) -> str:
        return f"claim {self.claim} has {self.uuid}"


class ClaimedGpus:
    """Reads the checkpoints in `plugins`, the kubelet's directory of drivers, when they change."""

    def __init__(self, plugins: str, triggers: Triggers, host_root: str) -> None:
        self._boot = recovery_evidence.boot_id(host_root)
        self._triggers = triggers
        drivers = dict.fromkeys(vendor.dra_driver for vendor in vendors())
        self._paths = [os.path.join(plugins, driver, CHECKPOINT) for driver in drivers]
        self._known: dict[str, tuple[str, tuple[ClaimedGpu, ...]]] = {}  # version, content
        self._last: tuple[ClaimedGpu, ...] = ()

    def on_poll(self) -> None:
        """Trigger a turn if the claims have changed since the last one."""
        if self._claimed() != self._last:
            self._triggers.pull(Reason.HEALTH)

    def unavailable(self, resources: Iterable[Resource]) -> dict[str, str]:
        """Return the reasons of the offered devices that claims have, by UUID."""
        self._last = self._claimed()
        found: dict[str, str] = {}
        for resource in resources if self._last else ():
            for device in resource.devices:
                claimed = self._owner(resource, device)
                if claimed is not None:
                    found[device.uuid] = claimed.reason
        return found

    def check(self, resource: Resource, ids: Sequence[str]) -> None:
        """Return if no claim has the devices of these units; raises GH1850 and GH2642."""
        if not self._claimed():
            return
        for unit in units_of(resource, ids):
            claimed = self._owner(resource, unit.device)
            if claimed is not None:
                raise fault("GH2642", id=unit.id, resource=resource.name, claim=claimed.claim)

    def _owner(self, resource: Resource, device: Device) -> ClaimedGpu | None:
        is_unlimited = resource.sharing == TIME_SLICING and device.uuid not in resource.memory
        owners = (
            one
            for one in self._claimed()
            if one.overlaps(device) and not (is_unlimited and one.is_unlimited_share)
        )
        return next(owners, None)

    def _claimed(self) -> tuple[ClaimedGpu, ...]:
        return tuple(one for path in self._paths for one in self._of_driver(path))

    def _of_driver(self, path: str) -> tuple[ClaimedGpu, ...]:
        """Return the claims of a driver; an unreadable checkpoint has its last content."""
        last = self._known.get(path, ("", ()))
        try:
            version = files.version(os.stat(path))
        except OSError:
            return self._remember(path, "", ())
        if version == last[0]:
            return last[1]
        try:
            return self._remember(path, version, tuple(_read(path, self._boot)))
        except (OSError, GpuhookError, ValueError, KeyError, TypeError, AttributeError):
            return self._remember(path, version, last[1])

    def _remember(
        self, path: str, version: str, found: tuple[ClaimedGpu, ...]
    ) -> tuple[ClaimedGpu, ...]:
        self._known[path] = version, found
        return found


def _read(path: str, boot: str | None) -> Iterator[ClaimedGpu]:
    """Yield the devices in a checkpoint of this boot; its first line is the head."""
    head, _, body = files.read(path, _MAX_SIZE).partition(b"\n")
    if documents.parse_json_object(head)["boot"] != (boot or ""):
        return  # no container runs, and the kubelet prepares all claims again
    for prepared in documents.parse_json_object(body).values():
        yield from _devices(prepared)


def _devices(prepared: Mapping[str, Any]) -> Iterator[ClaimedGpu]:
    claim = prepared["claim"]
    name = f"{claim['name']['namespace']}/{claim['name']['name']}"
    for held, allocated in zip(prepared["held"], claim["devices"], strict=True):
        if not held["is_admin"]:
            is_unlimited = bool(held["part"]) and allocated["consumed"].get("memory") == 0
            yield ClaimedGpu(name, held["uuid"], held["gpu"], is_unlimited)
