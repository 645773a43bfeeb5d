# SPDX-License-Identifier: Apache-2.0
"""The mounts that every process of a node has, and that a chroot or a minimal container may lack.

Without /proc no process and no mount can be read, and child processes cannot close descriptors;
without /dev they have no /dev/null.
"""

from __future__ import annotations

import os
import stat

from gpuhook.errors import GpuhookError, fault

_MOUNTS = {
    "/proc": "mount -t proc proc /proc",
    "/dev": "mount -t devtmpfs dev /dev",
}


def require() -> None:
    """Raise GH1594 if /proc or /dev is missing."""
    found = trouble()
    if found is not None:
        raise found


def trouble() -> GpuhookError | None:
    """Return GH1594 if /proc or /dev is missing, else None."""
    present = {"/proc": os.path.isdir("/proc/self/fd"), "/dev": _has_null()}
    missing = [place for place, is_there in present.items() if not is_there]
    if not missing:
        return None
    commands = " && ".join(_MOUNTS[place] for place in missing)
    verb = "is" if len(missing) == 1 else "are"
    return fault("GH1594", places=" and ".join(missing), verb=verb, commands=commands)


def _has_null() -> bool:
    try:
        return stat.S_ISCHR(os.stat(os.devnull).st_mode)
    except OSError:
        return False
