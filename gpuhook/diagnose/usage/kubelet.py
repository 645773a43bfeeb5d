# SPDX-License-Identifier: Apache-2.0
"""What the kubelet tells: which container holds which unit, and how many units each GPU has.

The former is asked of its pod resources API, the latter is in the checkpoint of its device manager,
whichever plugin registered them. Source: the kubelet's pkg/kubelet/cm/devicemanager/checkpoint.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

from gpuhook import files, worker
from gpuhook.errors import GpuhookError
from gpuhook.grant import replicas
from gpuhook.vendors.nvidia import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Names = tuple[str, str, str]  # namespace, pod, container

# The kubelet's root: upstream's, microk8s's, k0s's.
ROOTS = (
    "/var/lib/kubelet",
    "/var/snap/microk8s/common/var/lib/kubelet",
    "/var/lib/k0s/kubelet",
)
_SOCKET = "pod-resources/kubelet.sock"
_CHECKPOINT = "device-plugins/kubelet_internal_checkpoint"
_MAX_CHECKPOINT = 64 << 20
_PATIENCE = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class Told:
    """What the kubelet told. `trouble` is why it could not be asked, "" if it was, or is not there.

    `held` are the units of each container, `units` all that are registered of each device.
    """

    held: dict[Names, tuple[str, ...]] = field(default_factory=dict)
    units: dict[str, tuple[str, ...]] = field(default_factory=dict)
    trouble: str = ""


def root() -> str:
    """Return the root of the kubelet of this node, "" where there is none."""
    return next((one for one in ROOTS if os.path.isdir(one)), "")


def told(place: str) -> Told:
    """Return what the kubelet with this root tells; "" for no kubelet."""
    if not place:
        return Told()
    held, trouble = _held(os.path.join(place, _SOCKET))
    return Told(held, _units(os.path.join(place, _CHECKPOINT)), trouble)


def _held(socket: str) -> tuple[dict[Names, tuple[str, ...]], str]:
    """Return the units that each container holds; asked in a process that gRPC may stay in."""
    if not os.path.exists(socket):
        return {}, ""
    try:
        listed, reason = worker.call_in_child(lambda: _asked(socket), _PATIENCE, relay_stderr=True)
    except worker.NoAnswerError as error:
        return {}, f"{socket}: {error.reason}"
    found: dict[Names, list[str]] = {}
    for unit, names in listed:
        found.setdefault(tuple(names), []).append(unit)
    return {names: tuple(units) for names, units in found.items()}, reason


def _asked(socket: str) -> list[Any]:
    import asyncio

    from gpuhook.kubernetes.metrics import holders

    told_ = asyncio.run(holders.ask(socket=socket, timeout=_PATIENCE))
    listed = [
        [unit, [one.namespace, one.pod, one.container]]
        for unit, one in told_.holders.items()
        if device_of(unit)
    ]
    return [listed, told_.reason]


def _units(path: str) -> dict[str, tuple[str, ...]]:
    """Return the units of each device, of the resource that has most of it."""
    try:
        document = json.loads(files.read(path, _MAX_CHECKPOINT))
        resources = document["Data"]["RegisteredDevices"]
        listed = [ids for ids in resources.values() if isinstance(ids, list)]
    except (OSError, GpuhookError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for ids in listed:
        for device, units in _by_device(ids).items():
            if len(units) > len(found.get(device, ())):
                found[device] = tuple(sorted(units, key=_order))
    return found


def _by_device(ids: list[Any]) -> dict[str, list[str]]:
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
    return device if words.is_uuid(device) else ""


def _order(unit: str) -> tuple[int, str]:
    number = unit.rpartition(replicas.SEPARATOR)[2]
    return (int(number) if number.isascii() and number.isdigit() else 0, unit)
