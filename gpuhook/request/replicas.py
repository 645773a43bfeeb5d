# SPDX-License-Identifier: Apache-2.0
"""Replica ids: `<device>::<n>`, the n-th time slice of a device.

A replica resolves to its device; the ledger records which replica a container has.
"""

from __future__ import annotations

from gpuhook.errors import fault

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
