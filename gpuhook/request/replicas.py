# SPDX-License-Identifier: Apache-2.0
"""Replica ids: `<device>::<n>`, the n-th time slice of a device.

A replica resolves to its device; the ledger records which replica a container has, and of which
claim of Dynamic Resource Allocation a device is.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.request import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any

SEPARATOR = "::"
CLAIM_ENV = "GPUHOOK_CLAIM_"  # begins the name of a variable for each device of a claim
_CLAIM = ("namespace", "claim", "request", "device", "share")  # with "/" between them
_MAX_DIGITS = 6
_MAX_CLAIM = 1024  # characters


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


def claim_entry(namespace: str, name: str, request: str, device: str, share: str) -> str:
    """Return the value of the variable for a device, or a share of one, that a claim has."""
    return "/".join((namespace, name, request, device, share))


def claims_of(
    spec: dict[str, Any], devices: Iterable[str], others: Callable[[], Collection[str]]
) -> list[dict[str, str]]:
    """Return the claims in a container's variables, as far as the container has their devices.

    Each has the keys of _CLAIM; a device that is not shared has an empty `share`. The arguments are
    those of replicas_of().
    """
    entries = [one for one in parse.variables(spec) if one.startswith(CLAIM_ENV)]
    parts = [
        one.partition("=")[2].split("/")
        for one in entries[: parse.MAX_NAMES]
        if len(one) <= _MAX_CLAIM and one.isprintable()
    ]
    found = [dict(zip(_CLAIM, one)) for one in parts if len(one) == len(_CLAIM)]
    granted = {qualified.partition("=")[2] for qualified in devices}
    if any(one["device"] not in granted for one in found):
        granted.update(others())
    return [one for one in found if one["device"] in granted]
