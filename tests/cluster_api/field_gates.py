# SPDX-License-Identifier: Apache-2.0
"""The fields of ResourceSlices that an API server drops without their feature gate."""

from __future__ import annotations

from tests.cluster_api.object_kinds import Object

SHARES, COUNTERS = "DRAConsumableCapacity", "DRAPartitionableDevices"
TAINTS, BINDING = "DRADeviceTaints", "DRADeviceBindingConditions"
EXTENDED = "DRAExtendedResource"
DEFAULT_SINCE = dict.fromkeys((SHARES, COUNTERS, TAINTS, BINDING, EXTENDED), 36)
_DEVICE_FIELDS = {
    SHARES: ("allowMultipleAllocations",),
    COUNTERS: ("consumesCounters",),
    TAINTS: ("taints",),
    BINDING: ("bindsToNode", "bindingConditions", "bindingFailureConditions"),
}


def default_gates(minor: int) -> set[str]:
    """Return the gates that are on in a cluster of version 1.`minor` without any option."""
    return {gate for gate, since in DEFAULT_SINCE.items() if minor >= since}


def drop_fields(kind: str, one: Object, gates: set[str]) -> None:
    """Remove the fields whose gate is off."""
    spec = one.get("spec") or {}
    if kind == "DeviceClass" and EXTENDED not in gates:
        spec.pop("extendedResourceName", None)
    if kind != "ResourceSlice":
        return
    if COUNTERS not in gates:
        spec.pop("sharedCounters", None)
    for device in spec.get("devices") or ():
        for gate, names in _DEVICE_FIELDS.items():
            for name in names if gate not in gates else ():
                device.pop(name, None)
        for capacity in (device.get("capacity") or {}).values() if SHARES not in gates else ():
            capacity.pop("requestPolicy", None)
