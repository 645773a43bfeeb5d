# SPDX-License-Identifier: Apache-2.0
"""The configured time slice and compute mode of each offered GPU. Pure.

GPUs without a configured value are left alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.device_plugin.config.sharing_section import MPS
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.device_plugin.config.sharing_section import SharedResource
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
        for device in resource.devices:
            entry = resource.entries.get(device.uuid)
            for kind, value in _configured(entry):
                objection = _fault(resource, device, kind)
                if objection is None:
                    values[device.uuid, kind] = value
                else:
                    faults.append(objection)
    return PolicyPlan(values, tuple(faults))


def _configured(entry: SharedResource | None) -> Iterator[tuple[str, str]]:
    if entry is None:
        return
    for kind, value in ((TIME_SLICE, entry.time_slice), (COMPUTE_MODE, entry.compute_mode)):
        if value is not None:
            yield kind, value


def _fault(resource: Resource, device: Device, kind: str) -> GpuhookError | None:
    name, uuid = resource.name, device.uuid
    if device.instance is not None:
        return fault(
            "GH1882", resource=name, uuid=uuid, key=_KEYS[kind], reason="it is a MIG instance"
        )
    if kind == COMPUTE_MODE and resource.sharing == MPS:
        return fault("GH1882", resource=name, uuid=uuid, key=_KEYS[kind], reason="MPS sets it")
    return None
