# SPDX-License-Identifier: Apache-2.0
"""The configured time slice and compute mode of each offered GPU. Pure.

GPUs without a configured value are left alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.device_plugin.config.sharing_section import MPS
from gpuhook.errors import fault
from gpuhook.vendors.catalogue import vendor_of_resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.device_plugin.offer.offered_devices import Device, Resource
    from gpuhook.errors import GpuhookError

TIME_SLICE, COMPUTE_MODE = KINDS = ("time slice", "compute mode")
_KEYS = {TIME_SLICE: "timeSlice", COMPUTE_MODE: "computeMode"}
# The UUID of a GPU, and one of KINDS.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PolicyPlan:
    """The values by GPU and kind, and the faults of configured values that cannot apply."""

    values: dict[Key, str] = field(default_factory=dict)
    faults: tuple[GpuhookError, ...] = ()


def policy_plan(resources: Iterable[Resource]) -> PolicyPlan:
    """Return the values for the GPUs of `resources`.

    Faults: GH1882 for a MIG instance, and for a compute mode of GPUs shared by MPS.
    """
    values: dict[Key, str] = {}
    faults: list[GpuhookError] = []
    for resource in resources:
        unshared = vendor_of_resource(resource.domain).unshared
        for device in resource.devices:
            entry = resource.entries.get(device.uuid)
            chosen = (entry.time_slice, entry.compute_mode) if entry else ()
            for kind, value in zip(KINDS, chosen, strict=False):
                if value is None or _KEYS[kind] in unshared:
                    continue
                reason = _objection(resource, device, kind)
                if reason:
                    facts = {"resource": resource.name, "uuid": device.uuid, "key": _KEYS[kind]}
                    faults.append(fault("GH1882", **facts, reason=reason))
                else:
                    values[device.uuid, kind] = value
    return PolicyPlan(values, tuple(faults))


def _objection(resource: Resource, device: Device, kind: str) -> str:
    if device.instance is not None:
        return "it is a MIG instance"
    return "MPS sets it" if kind == COMPUTE_MODE and resource.sharing == MPS else ""
