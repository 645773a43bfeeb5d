# SPDX-License-Identifier: Apache-2.0
"""Every error has a code, a sentence and a hint.

The texts are Markdown in catalogue/. `make generate` compiles them to messages.py, the table that
`fault()` reads.
"""

from __future__ import annotations

from gpuhook.errors.fault import fault, printable, rebuild
from gpuhook.errors.gpuhook_error import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.errors.kinds import (
        DriverError,
        FileError,
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


def __getattr__(name: str) -> object:
    """Return a kind of error: a create without an error loads none."""
    if name in __all__:
        from gpuhook.errors import kinds

        return getattr(kinds, name)
    raise AttributeError(name)
