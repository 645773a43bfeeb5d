# SPDX-License-Identifier: Apache-2.0
"""What the API server knows of ResourceSlices: the version of the API, and the fields it keeps.

A server drops the fields of a feature gate that is off, without an error. So a slice with all of
them is sent as a dry run, which stores nothing, and its answer shows the remaining fields.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuhook.dra.api.resource_api import GROUP, VERSIONS
from gpuhook.dra.pool.pool_device import MEMORY, Capacity, PoolDevice, Taint
from gpuhook.dra.slices import slice_document
from gpuhook.host.hot import fastjson
from gpuhook.vendors.plugin.vendor_device import Device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

SHARES, COUNTERS, TAINTS = "DRAConsumableCapacity", "DRAPartitionableDevices", "DRADeviceTaints"
_FIRST_SPLIT = 35  # 1.35 has counter sets in separate slices
_FIRST_INFORMATION = 36  # 1.36 knows taints with the effect None
# What is different without a gate.
_WITHOUT = {
    SHARES: "a shared GPU is offered as one device for each slot",
    COUNTERS: "devices have no counters, and devices that overlap are not offered",
    TAINTS: "unhealthy devices are not offered",
}


@dataclass(frozen=True, slots=True)
class ServerFeatures:
    """The version of the API ("v1"), the minor version of the server, and its feature gates."""

    version: str = VERSIONS[0]
    minor: int | None = None
    gates: frozenset[str] = frozenset(_WITHOUT)

    @property
    def has_split_counters(self) -> bool:
        """Whether counter sets and devices are in different slices."""
        return self.minor is None or self.minor >= _FIRST_SPLIT

    @property
    def has_information_taints(self) -> bool:
        """Whether a taint can have the effect None."""
        return TAINTS in self.gates and (self.minor or _FIRST_INFORMATION) >= _FIRST_INFORMATION

    def without(self, gates: Iterable[str]) -> ServerFeatures:
        return replace(self, gates=self.gates - set(gates))

    def __str__(self) -> str:
        """Return the version and the gates in one line."""
        server = "unknown" if self.minor is None else f"1.{self.minor}"
        states = (f"{gate} {'on' if gate in self.gates else 'off'}" for gate in _WITHOUT)
        return f"Kubernetes {server}, {GROUP}/{self.version}, {', '.join(states)}"


def dropped_fields(gates: Iterable[str]) -> list[str]:
    """Return a warning for each gate whose fields the server drops."""
    return [
        f"the API server drops the fields of the feature gate {gate}: {_WITHOUT[gate]}; "
        "the gate is on by default since Kubernetes 1.36"
        for gate in sorted(gates)
    ]


def minor_version(document: dict[str, Any]) -> int | None:
    """Return the minor version in the answer of /version, such as "34+"; None for another text."""
    digits = str(document.get("minor", "")).rstrip("+")
    return int(digits) if digits.isdecimal() and len(digits) <= 4 else None


def served_version(document: dict[str, Any]) -> str | None:
    """Return the preferred version in the answer of /apis/resource.k8s.io, None without one."""
    served = [one.get("version") for one in fastjson.objects(document, "versions")]
    return next((version for version in VERSIONS if version in served), None)


def probe_spec(driver: str, node: str, features: ServerFeatures) -> dict[str, Any]:
    """Return the spec of a slice that has the fields of all gates."""
    device = PoolDevice(
        "probe",
        Device("", "", "", 0, (), ()),
        capacity={MEMORY: Capacity(2, default=1, least=1, step=1)},
        counters={"probe": {"probe": 1}},
        taints=(Taint(f"{driver}/probe", time_added="2026-01-01T00:00:00Z"),),
        is_shared=True,
    )
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec: dict[str, Any] = {"driver": driver, "nodeName": node, "pool": pool}
    spec["devices"] = [slice_document.device_document(device)]
    if not features.has_split_counters:
        spec["sharedCounters"] = slice_document.counter_sets(device.counters)
    return spec


def dropped_gates(sent: Any, stored: Any) -> set[str]:
    """Return the gates whose fields are in the spec that was sent, and not in the stored one."""
    before, after = _gate_fields(sent), _gate_fields(stored)
    return {gate for gate, paths in before.items() if paths - after[gate]}


def _gate_fields(spec: dict[str, Any]) -> dict[str, set[tuple[str, str]]]:
    """Return (device, field) for each field of a gate."""
    found: dict[str, set[tuple[str, str]]] = {SHARES: set(), COUNTERS: set(), TAINTS: set()}
    if spec.get("sharedCounters"):
        found[COUNTERS].add(("", "sharedCounters"))
    for device in fastjson.objects(spec, "devices"):
        name = str(device.get("name", ""))
        if device.get("allowMultipleAllocations"):
            found[SHARES].add((name, "allowMultipleAllocations"))
        for capacity, own in fastjson.fields(device, "capacity").items():
            if fastjson.fields(own).get("requestPolicy"):
                found[SHARES].add((name, capacity))
        if device.get("consumesCounters"):
            found[COUNTERS].add((name, "consumesCounters"))
        if device.get("taints"):
            found[TAINTS].add((name, "taints"))
    return found
