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
        return fault("GH1592", path=where, reason=reason, directory=place, cure=_cure(error, place))
    return fault("GH1590", where=where, reason=reason, cure=cure)


def _cure(error: OSError, place: str) -> str:
    """Return how to get a usable state directory; another user's cannot be made one."""
    variable = state.DIRECTORY_ENV
    if needs_root(error) and not _is_ours(place):
        return f"become root (sudo), or set {variable} to a directory of your own"
    names = "names it" if os.environ.get(variable) else "names another"
    return f"make {place} a directory that you can write to; {variable} {names}"


def _is_ours(place: str) -> bool:
    try:
        return os.stat(place).st_uid == os.geteuid()
    except OSError:
        return False


def needs_root(error: OSError) -> bool:
    """Return whether this user lacks a permission that root has."""
    return error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() != 0
