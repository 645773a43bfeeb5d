# SPDX-License-Identifier: Apache-2.0
"""What a fault's code means."""

from __future__ import annotations

import re
from typing import Any

from gpuhook.errors import (
    DriverError,
    FileError,
    GpuhookError,
    HostError,
    RefusedError,
    RequestError,
    fault,
)
from gpuhook.fault_texts import text_of

CODE = re.compile(r"GH\d{4}")
_ABOUT: dict[type[GpuhookError], str] = {
    RequestError: "what the container asks for",
    FileError: "a file",
    DriverError: "the NVIDIA driver",
    RefusedError: "a policy, or the safety of the host",
    HostError: "the host",
}


def explained(code: str) -> dict[str, Any]:
    """Return the fault of a code: what it is about, its sentence and its hint; GH1915 for none.

    What stands in braces in these is filled in where the fault is met.
    """
    try:
        kind, message, hint = text_of(code)
    except KeyError as error:
        raise fault("GH1915", name=code) from error
    return {"code": code, "about": _ABOUT[kind], "message": message, "hint": hint}
