# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH21xx: installing gpuhook on a node, and taking it away.

HOT, and loaded only where something is wrong.
"""

from __future__ import annotations

from gpuhook.errors import GpuhookError, HostError

TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
    "GH2100": (
        HostError,
        "{root} is no root of a host: {reason}",
        "mount the host's root there, such as hostPath / at /host, and name it with --host-root",
    ),
}
