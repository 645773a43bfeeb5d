# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH19xx: looking at nodes and requests."""

from __future__ import annotations

from gpuhook.errors import FileError, GpuhookError, RequestError

TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
    "GH1900": (
        FileError,
        "{path} is no tree of a node's files: {reason}",
        "name the directory that has the node's etc, proc and dev, such as /host in a pod",
    ),
    "GH1930": (
        FileError,
        "{place}: this is no manifest that can be read: {reason}",
        "mend the text at that place; `kubectl apply --dry-run=client -f FILE` reads it too",
    ),
    "GH1931": (
        RequestError,
        "{path} has no pod and no workload with a pod template in it: {kinds}",
        "name a file with a Pod, Deployment or the like; a copy without its indentation has none",
    ),
}
