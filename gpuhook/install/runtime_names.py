# SPDX-License-Identifier: Apache-2.0
"""The names of the runtime: one for each vendor, as that vendor's own tools call theirs."""

from __future__ import annotations

from contextlib import suppress

from gpuhook.errors import GpuhookError
from gpuhook.vendors.catalogue import vendors


def default_name(host_root: str) -> str:
    """Return the name for the first vendor with GPUs on a host, of the first vendor without any."""
    return names_of_gpus(host_root)[0]


def names_of_gpus(host_root: str) -> tuple[str, ...]:
    """Return the names for all vendors with GPUs on a host; at least that of the first vendor."""
    every = vendors()
    found = []
    for vendor in every:
        with suppress(GpuhookError, OSError):
            found += [] if vendor.absence(host_root) else [vendor.name]
    return tuple(found) or (every[0].name,)


def default_sentence() -> str:
    """Return the sentence about the default for the help of an option."""
    first, *others = (vendor.name for vendor in vendors())
    return f"Default: {first}, or {' or '.join(others)} on a host with no other GPUs"
