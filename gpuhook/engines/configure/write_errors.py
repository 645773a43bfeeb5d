# SPDX-License-Identifier: Apache-2.0
"""Why a file cannot be written, and what can be done about it."""

from __future__ import annotations

import errno
import os

from gpuhook.errors import GpuhookError, fault

_ADVICE = {
    errno.EROFS: "its file system is mounted read-only: name a file elsewhere with --config or "
    "--drop-in, or take the route cdi if the engine needs no configuration for it",
    errno.ENOSPC: "make room on its disk",
    errno.EDQUOT: "make room in the quota of its owner",
    errno.EISDIR: "move what is there away",
    errno.EEXIST: "move what is there away",
    errno.ENOENT: "mend the link: what it leads to is not there",
    errno.ENOTDIR: "move what is there away",
    errno.ELOOP: "mend the links on the way",
}


def unwritable(error: OSError) -> GpuhookError:
    """Return GH2001 for an error of writing, with what can be done about it."""
    advice = _ADVICE.get(error.errno or 0, "see what keeps it from being written")
    if error.errno in (errno.EPERM, errno.EACCES):
        advice = (
            "run this as root, or for an engine of your own as its user"
            if os.geteuid()
            else f"see whether it is immutable: lsattr {error.filename}"
        )
    reason = error.strerror or error
    return fault("GH2001", path=error.filename, reason=reason, advice=advice)
