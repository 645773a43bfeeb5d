# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH21xx: installing gpuhook on a node, and taking it away.

HOT, and loaded only where something is wrong.
"""

from __future__ import annotations

from gpuhook.errors import FileError, GpuhookError, HostError

TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
    "GH2100": (
        HostError,
        "{root} is no root of a host: {reason}",
        "mount the host's root there, such as hostPath / at /host, and name it with --host-root",
    ),
    "GH2130": (
        FileError,
        "{path} is not read: {reason}",
        "give the YAML that kubectl get clusterpolicy -o yaml prints, or the operator's values",
    ),
    "GH2131": (
        FileError,
        "{path} has no policy of the GPU operator: {reason}",
        "give one ClusterPolicy of nvidia.com/v1, or a values file of the operator's chart",
    ),
}
