# SPDX-License-Identifier: Apache-2.0
"""A read in a child process, with a deadline, for the wrapper: a driver may never answer.

A process in such a read is uninterruptible (proc(5), state D): no signal ends it, and its parent
waits for it, threads included. So the child reads. host/worker.py is for commands.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_DESCRIPTORS = 1024
_END = b"\n"
_LONGEST = 65536
_SIGKILL = 9
_late: list[int] = []  # killed children that a driver may still hold


def text(read: Callable[[], str], seconds: float) -> str | None:
    """Return what `read` returns in a child process, None if it does not within `seconds`.

    None at once while an earlier child is still held: a service gets no more of them. Without a
    child, as when there are too many processes, `read` is called here.
    """
    _late[:] = [pid for pid in _late if _is_held(pid)]
    if _late:
        return None
    reader, writer = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        return read()
    if pid == 0:
        _write(read, writer)
    os.close(writer)
    try:
        found = _answer(reader, pid, seconds)
    finally:
        os.close(reader)
    if found is None:
        return None
    return found[:-1].decode("utf-8", "surrogateescape") if found.endswith(_END) else read()


def _write(read: Callable[[], str], writer: int) -> None:
    """Write the text and end, in the child, without the pipes and locks of its parent."""
    try:
        os.closerange(0, writer)
        os.closerange(writer + 1, _DESCRIPTORS)
        os.write(writer, read().encode("utf-8", "surrogateescape") + _END)
    finally:
        os._exit(0)  # the parent's code never runs twice


def _answer(reader: int, pid: int, seconds: float) -> bytes | None:
    """Return what the child wrote; kill it, and return None, if that is nothing in time."""
    import select  # the HOT allow-list does not have it

    if not select.select([reader], [], [], seconds)[0]:
        os.kill(pid, _SIGKILL)
        _late.append(pid)
        return None
    found = os.read(reader, _LONGEST)
    os.waitpid(pid, 0)
    return found


def _is_held(pid: int) -> bool:
    """Return whether a killed child has not ended yet; one that has is not left as a zombie."""
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except OSError:
        return False  # the caller has waited for it
