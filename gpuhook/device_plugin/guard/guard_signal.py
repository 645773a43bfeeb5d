# SPDX-License-Identifier: Apache-2.0
"""Sending a signal to the process that it is for, and to no other.

Between the look and the signal the process may have ended, its pid may be another's, it may have
been moved, or it may have let go of the device. All of that is looked at again while a descriptor
holds the process.
"""

from __future__ import annotations

import os

from gpuhook.device_plugin.guard import usage_sample
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.device_plugin.guard.container_processes import About
    from gpuhook.device_plugin.guard.guard_policy import Order
    from gpuhook.device_plugin.guard.usage_sample import SampleDriver, SampleKernel, SampleTarget


def carried_out(
    order: Order,
    driver: SampleDriver,
    kernel: SampleKernel,
    target: SampleTarget,
    *,
    whose: Callable[[About], str | None],
    is_wanted: Callable[[], bool],
) -> bool:
    """Carry out an order, and return whether the signal was sent. Raises GH1886.

    `whose` tells which container a process is in, `is_wanted` is asked last: the configuration may
    have changed meanwhile.
    """
    user = order.user
    if user.pid in (0, 1, os.getpid(), os.getppid()) or user.container != order.share.container:
        return False

    def is_still() -> bool:
        try:
            listed = usage_sample.memory_by_pid(driver, target)
        except GpuhookError:
            return False
        if listed is None or not listed.get(user.pid):
            return False
        about = kernel.about(user.pid)
        if about is None or about.started != user.started:
            return False
        return whose(about) == user.container and is_wanted()

    return kernel.send(user.pid, order.signal, is_still)
