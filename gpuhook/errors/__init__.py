# SPDX-License-Identifier: Apache-2.0
"""Every error has a code, a sentence and a hint.

The texts are Markdown in catalogue/. `make generate` compiles them to messages.py, the table that
`fault()` reads.
"""

from __future__ import annotations

from gpuhook.errors.fault import fault, printable, rebuild
from gpuhook.errors.kinds import (
    DriverError,
    FileError,
    GpuhookError,
    HostError,
    RefusedError,
    RequestError,
    UsageError,
)

__all__ = (
    "DriverError",
    "FileError",
    "GpuhookError",
    "HostError",
    "RefusedError",
    "RequestError",
    "UsageError",
    "fault",
    "printable",
    "rebuild",
)
