# SPDX-License-Identifier: Apache-2.0
"""Waiting for what other threads do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Changes:
    """A condition variable, with a wait that fails when what is awaited does not come."""

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.RLock())

    def __enter__(self) -> None:
        self._condition.acquire()

    def __exit__(self, *_: object) -> None:
        self._condition.notify_all()
        self._condition.release()

    def wait_for(self, wanted: Callable[[], object], what: str = "", timeout: float = 60) -> None:
        """Return when `wanted()` is true; raise TimeoutError after a time that is far too long."""
        with self._condition:
            if not self._condition.wait_for(wanted, timeout):
                raise TimeoutError(f"waited {timeout} s for {what or wanted}")


def eventually(wanted: Callable[[], object], what: str = "", timeout: float = 60) -> None:
    """Poll until `wanted()` is true, for changes without an event."""
    end = time.monotonic() + timeout
    while not wanted():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {timeout} s for {what or wanted}")
        time.sleep(0.01)
