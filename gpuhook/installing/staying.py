# SPDX-License-Identifier: Apache-2.0
"""A pod that has nothing more to do until it is told to end."""

from __future__ import annotations

import signal

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def hold() -> None:
    """Keep the signals that end the process for `wait`: from here on none of them interrupts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def wait() -> signal.Signals:
    """Wait for one of the signals, and return it."""
    return signal.Signals(signal.sigwait(SIGNALS))
