# SPDX-License-Identifier: Apache-2.0
"""What is interrupted is undone: also where the terminal goes away in the middle."""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class Interruptible:
    """Within it, SIGHUP, SIGINT and SIGTERM raise KeyboardInterrupt.

    At once, but where they are held: then at the next check(), so that what is done wholly or not
    at all is. A signal that was ignored before (nohup) stays ignored.
    """

    def __init__(self) -> None:
        self._is_held = False
        self._came = False
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> Interruptible:  # noqa: PYI034 # Self needs a newer Python
        for number in _SIGNALS:
            before = signal.getsignal(number)
            if before not in (signal.SIG_IGN, None):
                self._before[number] = before
                signal.signal(number, self._heard)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def hold(self) -> None:
        """Raise nothing from now on but in check()."""
        self._is_held = True

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has come."""
        if self._came:
            raise KeyboardInterrupt

    def _heard(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 # a handler's
        self._came = True
        if not self._is_held:
            raise KeyboardInterrupt
