# SPDX-License-Identifier: Apache-2.0
"""`gpuhook` that kills itself with SIGKILL at one of its file operations.

KILL_AT is the number of the operation, counted while the file KILL_ARMED exists; without KILL_AT it
is `gpuhook` unchanged.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from gpuhook.cli import main

_OPERATIONS = ("rename", "unlink", "link", "fsync")


def arm(number: int, armed: str) -> None:
    """Let operation `number` kill the process before it does anything."""
    lock = threading.Lock()
    count = 0
    for name in _OPERATIONS:
        real = getattr(os, name)

        def operation(*args: Any, real: Any = real, **named: Any) -> Any:
            nonlocal count
            with lock:
                if os.path.exists(armed):
                    if count == number:
                        os.kill(os.getpid(), signal.SIGKILL)
                    count += 1
            return real(*args, **named)

        setattr(os, name, operation)


if __name__ == "__main__":
    if "KILL_AT" in os.environ:
        arm(int(os.environ["KILL_AT"]), os.environ["KILL_ARMED"])
    main(prog_name="gpuhook")
