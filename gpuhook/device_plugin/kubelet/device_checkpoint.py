# SPDX-License-Identifier: Apache-2.0
"""The checkpoint of the kubelet's device manager: the units of each container and each GPU.

It has the units of all plugins (upstream: pkg/kubelet/cm/devicemanager/checkpoint).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from gpuhook.errors import GpuhookError
from gpuhook.host import documents
from gpuhook.host.hot import files
from gpuhook.request import replicas
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Any

    Holder = tuple[str, str]  # UID of the pod, name of the container

# The root directories of upstream's, microk8s's and k0s's kubelet.
ROOTS = (
    "/var/lib/kubelet",
    "/var/snap/microk8s/common/var/lib/kubelet",
    "/var/lib/k0s/kubelet",
)
PLUGINS = "device-plugins"
NAME = "kubelet_internal_checkpoint"
_MAX_CHECKPOINT = 64 << 20


@dataclass(frozen=True, slots=True)
class KubeletAnswer:
    """The kubelet's checkpoint; `trouble` is why it cannot be read, "" if it can.

    `held` has the units of each container, `units` all registered units of each device.
    """

    held: dict[Holder, tuple[str, ...]] = field(default_factory=dict)
    units: dict[str, tuple[str, ...]] = field(default_factory=dict)
    trouble: str = ""


def root() -> str:
    """Return the root directory of this node's kubelet, "" if it has none."""
    return next((one for one in ROOTS if os.path.isdir(one)), "")


def kubelet_units(place: str, devices: Collection[str] = ()) -> KubeletAnswer:
    """Return the checkpoint of the kubelet with this root directory; "" for no kubelet.

    `devices` are the ids of this node: a PCI address may also be that of a network device. A
    kubelet without a registered device plugin has no checkpoint.
    """
    path = os.path.join(place, PLUGINS, NAME)
    if not place or not os.path.lexists(path):
        return KubeletAnswer()
    try:
        data = content(path)
        units = _units(data["RegisteredDevices"] or {}, devices)
        return KubeletAnswer(_held(data, devices), units)
    except OSError as error:
        return KubeletAnswer(trouble=f"{path}: {error.strerror}")
    except (GpuhookError, ValueError, KeyError, TypeError, AttributeError) as error:
        return KubeletAnswer(trouble=f"{path}: {type(error).__name__}: {error}")


def content(path: str) -> dict[str, Any]:
    """Return the data of a checkpoint; raises OSError, GpuhookError, ValueError and KeyError."""
    data: dict[str, Any] = documents.parse_json(files.read(path, _MAX_CHECKPOINT))["Data"]
    return data


def _held(data: dict[str, Any], devices: Collection[str]) -> dict[Holder, tuple[str, ...]]:
    """Return the units of each container; the kubelet lists them by NUMA node."""
    found: dict[Holder, list[str]] = {}
    for one in data.get("PodDeviceEntries") or ():
        ids = one["DeviceIDs"] or {}
        listed = ids.values() if isinstance(ids, dict) else [ids]  # a list before Kubernetes 1.20
        units = [unit for some in listed for unit in some or () if device_of(unit, devices)]
        found.setdefault((one["PodUID"], one["ContainerName"]), []).extend(units)
    return {holder: tuple(sorted(units, key=unit_order)) for holder, units in found.items()}


def _units(resources: dict[str, Any], devices: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the units of each device, of the resource with the most units of it."""
    found: dict[str, tuple[str, ...]] = {}
    for ids in resources.values():
        for device, units in _by_device(ids or (), devices).items():
            if len(units) > len(found.get(device, ())):
                found[device] = tuple(sorted(units, key=unit_order))
    return found


def _by_device(ids: Iterable[Any], devices: Collection[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for unit in ids:
        if isinstance(unit, str) and (device := device_of(unit, devices)):
            found.setdefault(device, []).append(unit)
    return found


def device_of(unit: str, devices: Collection[str] = ()) -> str:
    """Return the id of the device of a unit, "" for a unit that is not of a GPU.

    >>> device_of("GPU-1::2"), device_of("eth0"), device_of("0000:03:00.0::0", ["0000:03:00.0"])
    ('GPU-1', '', '0000:03:00.0')
    """
    device = replicas.device_of(unit) or unit
    is_known = device in devices or any(vendor.is_device_id(device) for vendor in vendors())
    return device if is_known else ""


def unit_order(unit: str) -> tuple[int, str]:
    """Return a key that sorts the units of a device by their numbers."""
    number = unit.rpartition(replicas.SEPARATOR)[2]
    return (int(number) if number.isascii() and number.isdigit() else 0, unit)
