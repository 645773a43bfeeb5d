# SPDX-License-Identifier: Apache-2.0
"""`gpuhook` that kills itself with SIGKILL at one of its file operations, or hangs.

KILL_AT is the number of the operation, counted while the file KILL_ARMED exists. With HANGS, no
driver of GPUs answers. Without these variables it is `gpuhook` unchanged.
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


def hang() -> None:
    """Let each snapshot of the node take for ever."""
    from gpuhook.device_plugin import node_snapshot

    def take(*_: object) -> Any:
        threading.Event().wait()

    vars(node_snapshot)["take"] = take


if __name__ == "__main__":
    if "HANGS" in os.environ:
        hang()
    if "KILL_AT" in os.environ:
        arm(int(os.environ["KILL_AT"]), os.environ["KILL_ARMED"])
    main(prog_name="gpuhook")
