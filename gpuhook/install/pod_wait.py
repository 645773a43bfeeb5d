# SPDX-License-Identifier: Apache-2.0
"""Wait for the signal that ends a pod."""

from __future__ import annotations

import os
import signal

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def block_signals() -> None:
    """Block the signals that end the process, until `wait` takes them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def wait() -> signal.Signals:
    """Wait for one of the signals, and return it.

    The first process of a pod becomes the parent of orphans: it reaps them meanwhile.
    """
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them from now on
    try:
        _reap()
        return signal.Signals(signal.sigwait(SIGNALS))
    finally:
        signal.signal(signal.SIGCHLD, before)


def _reap() -> None:
    """Reap the processes that ended before."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
