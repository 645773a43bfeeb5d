# SPDX-License-Identifier: Apache-2.0
"""Signals that interrupt a command: SIGHUP, SIGINT and SIGTERM raise, so that work is undone."""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class Interruptible:
    """Within it, SIGHUP, SIGINT and SIGTERM raise KeyboardInterrupt.

    They raise at once, or, after hold(), at the next check(), so that a step is done completely or
    not at all; `came` says whether one has come. A signal that was ignored before (nohup) is still
    ignored.
    """

    def __init__(self) -> None:
        self._is_held = False
        self.came = False
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> Interruptible:  # noqa: PYI034 # Self needs a newer Python
        for number in _SIGNALS:
            before = signal.getsignal(number)
            if before not in (signal.SIG_IGN, None):
                self._before[number] = before
                signal.signal(number, self._handle)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def hold(self) -> None:
        """From now on, raise only in check()."""
        self._is_held = True

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has come."""
        if self.came:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 # a handler's
        self.came = True
        if not self._is_held:
            raise KeyboardInterrupt
