# SPDX-License-Identifier: Apache-2.0
"""An OSError of a command as a fault."""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import state


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
