# SPDX-License-Identifier: Apache-2.0
"""A pod that has nothing more to do until it is told to end."""

from __future__ import annotations

import os
import signal

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def hold() -> None:
    """Keep the signals that end the process for `wait`: from here on none of them interrupts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def wait() -> signal.Signals:
    """Wait for one of the signals, and return it.

    As the first process of a pod this one gets the orphans of others: none of them stays a zombie.
    """
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # from here on the kernel reaps them
    try:
        _reap()
        return signal.Signals(signal.sigwait(SIGNALS))
    finally:
        signal.signal(signal.SIGCHLD, before)


def _reap() -> None:
    """Take those that have ended before."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
