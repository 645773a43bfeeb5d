# SPDX-License-Identifier: Apache-2.0
"""A child process that does not outlive its parent.

Source: prctl(2), PR_SET_PDEATHSIG in linux/prctl.h.
"""

from __future__ import annotations

import os

from gpuhook.kernel.libc import LIBC, os_error

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


def die_with(parent: int) -> None:
    """Have this process killed when its parent, the process `parent`, ends; raises OSError."""
    if LIBC.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0) != 0:
        raise os_error("PR_SET_PDEATHSIG")
    if os.getppid() != parent:  # it has ended before the call
        os.kill(os.getpid(), _SIGKILL)
