# SPDX-License-Identifier: Apache-2.0
"""Faults GH21xx at length: cause, cure, example."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str, str]] = {
    "GH2100": (
        (
            "gpuhook was told to install into a directory that is not there, is no directory, or "
            "has nothing of a host in it."
        ),
        "Mount the host's root into the pod, and name where it is.",
        """
$ gpuhook install --host-root /host
""",
    ),
}
