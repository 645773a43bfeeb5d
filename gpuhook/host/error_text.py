# SPDX-License-Identifier: Apache-2.0
"""An OSError of a command as a fault."""

from __future__ import annotations

import errno
import os

from gpuhook.errors import GpuhookError, fault
from gpuhook.host import system_mounts
from gpuhook.host.hot import state


def fault_document(error: GpuhookError) -> dict[str, str]:
    """Return a fault as documents have it."""
    return {"code": error.code, "message": error.message, "hint": error.hint}


def worded(error: GpuhookError | OSError) -> GpuhookError:
    """Return an error as a fault: GH1594 for a missing /proc or /dev, else GH1592 or GH1590.

    GH1592 is for paths of the state directory, GH1590 for all others.
    """
    if isinstance(error, GpuhookError):
        return error
    if str(error.filename or "").startswith(("/proc/", "/dev/")):
        unmounted = system_mounts.trouble()
        if unmounted is not None:
            return unmounted
    reason = error.strerror or error
    cure = "become root (sudo)" if needs_root(error) else "correct that path"
    if error.filename is None:
        return fault("GH1590", where="the system", reason=reason, cure=cure)
    place, where = state.directory(), str(error.filename)
    if where == place or where.startswith(place + "/"):
        names = "names it" if os.environ.get(state.DIRECTORY_ENV) else "names another"
        variable = f"{state.DIRECTORY_ENV} {names}"
        return fault("GH1592", path=where, reason=reason, directory=place, variable=variable)
    return fault("GH1590", where=where, reason=reason, cure=cure)


def needs_root(error: OSError) -> bool:
    """Return whether this user lacks a permission that root has."""
    return error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() != 0
