# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH19xx: looking at nodes and requests."""

from __future__ import annotations

from gpuhook.errors import FileError, GpuhookError

TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
    "GH1900": (
        FileError,
        "{path} is no tree of a node's files: {reason}",
        "name the directory that has the node's etc, proc and dev, such as /host in a pod",
    ),
    "GH1940": (
        FileError,
        "{path} cannot be used as a record of comparisons: {reason}",
        "name a file that `gpuhook compare --record` has written, or one that is not there yet",
    ),
}
