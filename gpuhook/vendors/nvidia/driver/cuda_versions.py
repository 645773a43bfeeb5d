# SPDX-License-Identifier: Apache-2.0
"""The CUDA version of a driver by its branch, if NVML cannot be loaded.

Source: CUDA Toolkit Release Notes, "CUDA Toolkit and Corresponding Driver Versions": a toolkit is
released together with a driver, whose branch has a libcuda of that version. A branch without a
toolkit (565), or one newer than the table, has no entry.
"""

from __future__ import annotations

_BY_BRANCH = {
    384: "9.0",
    387: "9.1",
    390: "9.1",
    396: "9.2",
    410: "10.0",
    418: "10.1",
    440: "10.2",
    450: "11.0",
    455: "11.1",
    460: "11.2",
    465: "11.3",
    470: "11.4",
    495: "11.5",
    510: "11.6",
    515: "11.7",
    520: "11.8",
    525: "12.0",
    530: "12.1",
    535: "12.2",
    545: "12.3",
    550: "12.4",
    555: "12.5",
    560: "12.6",
    570: "12.8",
    575: "12.9",
    580: "13.0",
    590: "13.1",
}


def of_driver(version: str | None) -> str | None:
    """Return the CUDA version of the driver `version` ("580.95.05"), None if unknown."""
    branch = (version or "").partition(".")[0]
    return _BY_BRANCH.get(int(branch)) if branch.isascii() and branch.isdigit() else None
