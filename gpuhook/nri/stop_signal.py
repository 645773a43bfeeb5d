# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and SIGINT, seen only while the process waits: an answer that has begun is given."""

from __future__ import annotations

import select
import signal
import socket


class StopError(Exception):
    """A signal ends the process."""


class StopSignal:
    """Waits for bytes, or for the time, or for the signal. For the main thread."""

    def __init__(self) -> None:
        self._reader, writer = socket.socketpair()
        writer.setblocking(False)
        self._writer = writer
        signal.set_wakeup_fd(writer.fileno())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: None)

    def wait(self, descriptor: int | None, seconds: float | None) -> bool:
        """Return whether a descriptor has bytes to read, False after `seconds`.

        Raises StopError after a signal, once there is nothing to read.
        """
        watched = [self._reader.fileno(), *([] if descriptor is None else [descriptor])]
        ready = select.select(watched, (), (), seconds)[0]
        if descriptor in ready:
            return True
        if ready:
            raise StopError
        return False
