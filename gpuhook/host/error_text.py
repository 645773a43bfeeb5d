# SPDX-License-Identifier: Apache-2.0
"""Exceptions as faults: an OSError, and an exception that no code handles."""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import state
from gpuhook.host.hot.engine_log import line_of


def unforeseen(error: Exception) -> GpuhookError:
    """Return GH1491 for an unexpected exception, with the line that raised it."""
    return fault("GH1491", kind=type(error).__name__, reason=error, place=line_of(error))


def fault_document(error: GpuhookError) -> dict[str, str]:
    """Return a fault as documents have it."""
    return {"code": error.code, "message": error.message, "hint": error.hint}


def worded(error: GpuhookError | OSError) -> GpuhookError:
    """Return an error as a fault: GH1592 for the state directory, GH1590 for other paths."""
    if isinstance(error, GpuhookError):
        return error
    reason = error.strerror or error
    if error.filename is None:
        return fault("GH1590", where="the system", reason=reason)
    place, where = state.directory(), str(error.filename)
    if where == place or where.startswith(place + "/"):
        names = "names it" if os.environ.get(state.DIRECTORY_ENV) else "names another"
        variable = f"{state.DIRECTORY_ENV} {names}"
        return fault("GH1592", path=where, reason=reason, directory=place, variable=variable)
    return fault("GH1590", where=where, reason=reason)
