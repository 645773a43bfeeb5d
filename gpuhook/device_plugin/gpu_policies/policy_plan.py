# SPDX-License-Identifier: Apache-2.0
"""Which time slice and compute mode each GPU is to have, by the entries of what is offered. Pure.

Only entries that say something are asked: a GPU that nobody speaks of stays what it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.device_plugin.config.configuration import MPS
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.device_plugin.config.configuration import SharedResource
    from gpuhook.device_plugin.offer.offered_devices import Device, Resource
    from gpuhook.errors import GpuhookError

TIME_SLICE, COMPUTE_MODE = KINDS = ("time slice", "compute mode")
_KEYS = {TIME_SLICE: "timeSlice", COMPUTE_MODE: "computeMode"}
# A GPU by UUID and what is set of it, of KINDS.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PolicyPlan:
    """The values by GPU and kind, and why some of what is configured is not among them."""

    values: dict[Key, str] = field(default_factory=dict)
    faults: tuple[GpuhookError, ...] = ()


def policy_plan(resources: Iterable[Resource]) -> PolicyPlan:
    """Return what the GPUs of `resources` are to have.

    Faults: GH1882 for a MIG instance, and for a compute mode with MPS.
    """
    values: dict[Key, str] = {}
    faults: list[GpuhookError] = []
    for resource in resources:
        for device in resource.devices:
            entry = resource.entries.get(device.uuid)
            for kind, value in _said(entry):
                wrong = _wrong(resource, device, kind)
                if wrong is None:
                    values[device.uuid, kind] = value
                else:
                    faults.append(wrong)
    return PolicyPlan(values, tuple(faults))


def _said(entry: SharedResource | None) -> Iterator[tuple[str, str]]:
    if entry is None:
        return
    for kind, value in ((TIME_SLICE, entry.time_slice), (COMPUTE_MODE, entry.compute_mode)):
        if value is not None:
            yield kind, value


def _wrong(resource: Resource, device: Device, kind: str) -> GpuhookError | None:
    name, uuid = resource.name, device.uuid
    if device.instance is not None:
        return fault(
            "GH1882", resource=name, uuid=uuid, key=_KEYS[kind], reason="it is a MIG instance"
        )
    if kind == COMPUTE_MODE and resource.sharing == MPS:
        return fault("GH1882", resource=name, uuid=uuid, key=_KEYS[kind], reason="MPS sets it")
    return None
