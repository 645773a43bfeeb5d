# SPDX-License-Identifier: Apache-2.0
"""An amount of memory in words.

Imported only for a container with a limit.
"""

from __future__ import annotations

from gpuhook.request.memory_request import MIB, NO_LIMIT

_GIB = 1 << 30


def amount(size: int) -> str:
    """Return bytes as Kubernetes writes them: 4Gi, 3776Mi; "none" for NO_LIMIT.

    >>> amount(4 << 30), amount(3776 << 20)
    ('4Gi', '3776Mi')
    """
    if size == NO_LIMIT:
        return "none"
    if size and size % _GIB == 0:
        return f"{size // _GIB}Gi"
    return f"{size // MIB}Mi"
