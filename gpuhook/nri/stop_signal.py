# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and SIGINT, seen only while the process waits: an answer that has begun is given."""

from __future__ import annotations

import select
import signal
import socket
from contextlib import ExitStack

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopError(Exception):
    """A signal ends the process."""


class StopSignal:
    """Waits for bytes, or for the time, or for the signal. For the main thread."""

    def __init__(self) -> None:
        self._ends = ExitStack()
        self._descriptor = -1

    def begin(self) -> None:
        """Handle the signals until end()."""
        reader, writer = (self._ends.enter_context(one) for one in socket.socketpair())
        writer.setblocking(False)
        self._descriptor = reader.fileno()
        self._ends.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(writer.fileno()))
        for number in _SIGNALS:
            before = signal.signal(number, lambda _number, _frame: None)
            self._ends.callback(signal.signal, number, before)

    def end(self) -> None:
        """Handle the signals as before."""
        self._ends.close()

    def wait(self, descriptor: int | None, seconds: float | None) -> bool:
        """Return whether a descriptor has bytes to read, False after `seconds`.

        Raises StopError after a signal, once there is nothing to read.
        """
        watched = [self._descriptor, *([] if descriptor is None else [descriptor])]
        ready = select.select(watched, (), (), seconds)[0]
        if descriptor in ready:
            return True
        if ready:
            raise StopError
        return False
