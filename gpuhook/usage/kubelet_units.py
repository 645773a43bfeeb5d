# SPDX-License-Identifier: Apache-2.0
"""What the kubelet tells: which container holds which unit, and how many units each GPU has.

Both are in the checkpoint of its device manager, whichever plugin registered them. Source: the
kubelet's pkg/kubelet/cm/devicemanager/checkpoint.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from gpuhook.errors import GpuhookError
from gpuhook.host import documents
from gpuhook.host.hot import files
from gpuhook.request import replicas
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    Holder = tuple[str, str]  # UID of the pod, name of the container

# The kubelet's root: upstream's, microk8s's, k0s's.
ROOTS = (
    "/var/lib/kubelet",
    "/var/snap/microk8s/common/var/lib/kubelet",
    "/var/lib/k0s/kubelet",
)
_CHECKPOINT = "device-plugins/kubelet_internal_checkpoint"
_MAX_CHECKPOINT = 64 << 20


@dataclass(frozen=True, slots=True)
class KubeletAnswer:
    """What the kubelet told. `trouble` is why its checkpoint cannot be read, "" if it can.

    `held` are the units of each container, `units` all that are registered of each device.
    """

    held: dict[Holder, tuple[str, ...]] = field(default_factory=dict)
    units: dict[str, tuple[str, ...]] = field(default_factory=dict)
    trouble: str = ""


def root() -> str:
    """Return the root of the kubelet of this node, "" where there is none."""
    return next((one for one in ROOTS if os.path.isdir(one)), "")


def kubelet_units(place: str) -> KubeletAnswer:
    """Return what the kubelet with this root tells; "" for no kubelet.

    A kubelet to which no device plugin has registered has no checkpoint.
    """
    path = os.path.join(place, _CHECKPOINT)
    if not place or not os.path.lexists(path):
        return KubeletAnswer()
    try:
        data = documents.parse_json(files.read(path, _MAX_CHECKPOINT))["Data"]
        return KubeletAnswer(_held(data), _units(data["RegisteredDevices"] or {}))
    except OSError as error:
        return KubeletAnswer(trouble=f"{path}: {error.strerror}")
    except (GpuhookError, ValueError, KeyError, TypeError, AttributeError) as error:
        return KubeletAnswer(trouble=f"{path}: {type(error).__name__}: {error}")


def _held(data: dict[str, Any]) -> dict[Holder, tuple[str, ...]]:
    """Return the units that each container holds: the kubelet lists them by NUMA node."""
    found: dict[Holder, list[str]] = {}
    for one in data.get("PodDeviceEntries") or ():
        ids = one["DeviceIDs"] or {}
        listed = ids.values() if isinstance(ids, dict) else [ids]  # a list before Kubernetes 1.20
        units = [unit for some in listed for unit in some or () if device_of(unit)]
        found.setdefault((one["PodUID"], one["ContainerName"]), []).extend(units)
    return {holder: tuple(sorted(units, key=_order)) for holder, units in found.items()}


def _units(resources: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the units of each device, of the resource that has most of it."""
    found: dict[str, tuple[str, ...]] = {}
    for ids in resources.values():
        for device, units in _by_device(ids or ()).items():
            if len(units) > len(found.get(device, ())):
                found[device] = tuple(sorted(units, key=_order))
    return found


def _by_device(ids: Iterable[Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for unit in ids:
        if isinstance(unit, str) and (device := device_of(unit)):
            found.setdefault(device, []).append(unit)
    return found


def device_of(unit: str) -> str:
    """Return the UUID of the device that a unit is one of, "" for one that is no GPU's.

    >>> device_of("GPU-1::2"), device_of("eth0")
    ('GPU-1', '')
    """
    device = replicas.device_of(unit) or unit
    return device if vocabulary.is_uuid(device) else ""


def _order(unit: str) -> tuple[int, str]:
    number = unit.rpartition(replicas.SEPARATOR)[2]
    return (int(number) if number.isascii() and number.isdigit() else 0, unit)
