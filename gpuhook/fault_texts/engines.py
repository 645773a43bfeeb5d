# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH20xx: configuring container engines.

HOT, and loaded only where something is wrong.
"""

from __future__ import annotations

from gpuhook.errors import GpuhookError, RefusedError

TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
    "GH2000": (
        RefusedError,
        "{where}: the runtime {name} of {engine} is {program}, which is not gpuhook's",
        (
            "call ours another name with --runtime-name, or take this one over with --take-over: "
            "undo gives it back"
        ),
    ),
}
