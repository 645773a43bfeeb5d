# SPDX-License-Identifier: Apache-2.0
"""Whether this node's driver can hold containers to limits of memory."""

from __future__ import annotations


def can_limit(library: str | None) -> bool:
    """Return whether it can. Without a library nothing is held."""
    return library is not None and not reason(library)[0]


def reason(library: str | None) -> tuple[str, str]:
    """Return why it cannot and what to do about it, two empty texts where it can."""
    from gpuhook.memory_limits import driver_support

    found = driver_support.driver_support(library)
    return found.reason, found.remedy
