# SPDX-License-Identifier: Apache-2.0
"""The C library, for system calls that Python has no function for.

WARM: ctypes costs over a millisecond, so hooks may import this and the wrapper may not.
"""

from __future__ import annotations

import ctypes
import errno
import os

LIBC = ctypes.CDLL(None, use_errno=True)

_REASONS = {
    errno.ENOSYS: "this kernel does not have the system call",
    errno.EPERM: "not permitted here; CAP_SYS_ADMIN over this mount namespace is needed",
}


def os_error(path: str) -> OSError:
    """Return the OSError of the last failed call, with `path` and a reason people understand."""
    number = ctypes.get_errno()
    return OSError(number, _REASONS.get(number) or os.strerror(number), path)
