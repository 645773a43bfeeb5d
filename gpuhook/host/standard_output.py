# SPDX-License-Identifier: Apache-2.0
"""Standard output that is closed, or that nothing more goes to: said once, and not as a traceback.

Python ignores what is printed to a closed one, and tells of a full one a second time at its end.
"""

from __future__ import annotations

import errno
import io
import os
import sys

from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NUMBER = 1
_NAME = "standard output"


class _Named(io.FileIO):
    """Standard output whose errors say that they are of it."""

    def write(self, data: Any, /) -> int:
        """Write as a file does."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = _NAME
            raise


def name() -> None:
    """Make the errors of this process's standard output known to trouble().

    Where it is closed (`>&-`), a write fails from now on, and no file that is opened later gets
    its number.
    """
    old = sys.stdout
    if old is not sys.__stdout__:
        return
    if old is None:
        _point(os.O_RDONLY)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Named(_NUMBER, "wb", closefd=False)),
        encoding=old.encoding if old else "utf-8",
        errors=old.errors if old else "backslashreplace",
        line_buffering=isinstance(old, io.TextIOWrapper) and old.line_buffering,
    )


def trouble(error: OSError) -> GpuhookError | None:
    """Return GH1591 if `error` is one of standard output, None for another.

    What could not be written goes nowhere from now on, so that nothing fails a second time.
    """
    if error.filename != _NAME:
        return None
    _point(os.O_WRONLY)
    reason = "it is closed" if error.errno == errno.EBADF else error.strerror
    return fault("GH1591", reason=reason)


def _point(flags: int) -> None:
    """Let standard output be /dev/null, opened with `flags`."""
    fd = os.open(os.devnull, flags)
    if fd != _NUMBER:
        os.dup2(fd, _NUMBER)
        os.close(fd)
