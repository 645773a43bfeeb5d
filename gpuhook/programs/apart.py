# SPDX-License-Identifier: Apache-2.0
"""Work in a process of its own, for as long as it may take: a container can keep us waiting.

Its own file systems (FUSE) answer when they like, and nothing but SIGKILL ends that wait.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time

from gpuhook import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def done(work: Callable[[], Any], seconds: float) -> Any:
    """Return what `work`, done in a child process, returns, as far as JSON can say it.

    Raises TimeoutError after so many seconds. `work` catches what it raises.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            files.write_whole(writer, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    try:
        return json.loads(_read(reader, time.monotonic() + seconds))
    finally:
        os.close(reader)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _read(fd: int, end: float) -> bytes:
    """Return all that comes out of a pipe; raises TimeoutError."""
    chunks: list[bytes] = []
    while True:
        if not select.select([fd], [], [], max(0.0, end - time.monotonic()))[0]:
            raise TimeoutError
        chunk = os.read(fd, 65536)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
