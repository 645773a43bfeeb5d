# SPDX-License-Identifier: Apache-2.0
"""Faults GH19xx at length: cause, cure, example."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str, str]] = {
    "GH1900": (
        "--root names something that is no directory, or one that may not be entered.",
        "Name the directory with the node's etc, proc and dev.",
        """
$ gpuhook doctor --root /host
""",
    ),
}
