# SPDX-License-Identifier: Apache-2.0
"""The descriptors of a child process that may be stuck in a system call for ever."""

from __future__ import annotations

import os


def keep_only(*kept: int) -> None:
    """Close all descriptors but these; /dev/null takes the place of standard ones.

    A runtime waits until no process holds what it reads of a hook, others for the locks of a
    container.
    """
    nothing = os.open("/dev/null", os.O_RDWR)
    for standard in {0, 1, 2}.difference(kept):
        os.dup2(nothing, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                continue  # that of the listing itself
