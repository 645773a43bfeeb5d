# SPDX-License-Identifier: Apache-2.0
"""Replica ids: `<device>::<n>`, the n-th time slice of a device.

A replica resolves to its device; the ledger records which replica a container has.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.request import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any

SEPARATOR = "::"
_MAX_DIGITS = 6


def split(name: str) -> tuple[str, str | None]:
    """Return (device, replica id or None) of a requested name; GH1003 for a malformed replica.

    >>> split("GPU-1::2")
    ('GPU-1', 'GPU-1::2')
    """
    if SEPARATOR not in name:
        return name, None
    device = device_of(name)
    if device is None:
        raise fault("GH1003", name=name)
    return device, name


def device_of(name: str) -> str | None:
    """Return the device of a well-formed replica id, None for anything else."""
    device, found, number = name.rpartition(SEPARATOR)
    return device if found and device and _is_number(number) and SEPARATOR not in device else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def replicas_of(
    spec: dict[str, Any],
    devices: Iterable[str],
    others: Callable[[], Collection[str]],
) -> list[str]:
    """Return the replica ids in a container's variables, as far as the container has their devices.

    A device plugin names plain devices in the devices' variable, for runtimes that know no replica
    ids, and the replicas in one whose name is `replicas_env` or begins so: the kubelet keeps
    one value of a variable, and a container may have replicas of several resources. Any user can
    set them, so they only identify which replica of a granted device is meant. `devices` are the
    qualified names of those; `others` returns their other names, such as the UUID of a GPU that was
    requested by its index, and is only called for a replica of none of `devices`.
    """
    prefix = parse.Vocabulary.replicas_env
    found = parse.environment(spec).items()
    # Each list has its own bound: a variable of the container does not displace the plugin's.
    values = [value for name, value in found if name.startswith(prefix)]
    lists = [value.split(",")[: parse.MAX_NAMES] for value in values]
    names = dict.fromkeys(name.strip() for listed in lists for name in listed)
    granted = {qualified.partition("=")[2] for qualified in devices}
    wanted = {device for device in map(device_of, names) if device}
    if not wanted <= granted:
        granted.update(others())
    return [name for name in names if device_of(name) in granted]
