# SPDX-License-Identifier: Apache-2.0
"""The processes of a container that use a device: with an open node, or a mapping of its memory.

Matched by number, so a node under any name is found, a removed one, too. Source: proc(5):
/proc/PID/fd, /proc/PID/maps and /proc/PID/map_files.
"""

from __future__ import annotations

import os
import stat

from gpuhook.containers.warm.membership import members
from gpuhook.errors import GpuhookError, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.containers.warm.process_handle import Process

OPEN, MAPPED, UNKNOWN = "open", "mapped", "unknown"
_MAX_MAPS = 256 << 20  # a program may have 65530 mappings, and more by sysctl


def processes_with(init: Process, numbers: set[tuple[int, int]]) -> list[tuple[int, str, str]]:
    """Return (pid, command, how) of the container's processes that use a device of `numbers`.

    `init` is the container's first process, `numbers` are (major, minor) of character devices. How
    is OPEN or MAPPED, or UNKNOWN for a process that this user may not examine.
    """
    return [
        (process.pid, _command(process), how)
        for process in members(init)
        for how in (_use(process, numbers),)
        if how
    ]


def _use(process: Process, numbers: set[tuple[int, int]]) -> str:
    try:
        if any(_is_of(path, process, numbers) for path in _descriptors(process)):
            return OPEN
        if any(_is_of(path, process, numbers) for path in _mappings(process)):
            return MAPPED
    except PermissionError:
        return UNKNOWN
    except GpuhookError as error:
        return UNKNOWN if error.code == "GH1733" else ""  # else it has exited meanwhile
    return ""


def _is_of(path: str, process: Process, numbers: set[tuple[int, int]]) -> bool:
    try:
        found = os.stat(path, dir_fd=process.fd)
    except PermissionError:
        raise
    except OSError:
        return False  # closed meanwhile, or on a file system that is gone
    number = (os.major(found.st_rdev), os.minor(found.st_rdev))
    return stat.S_ISCHR(found.st_mode) and number in numbers


def _descriptors(process: Process) -> Iterator[str]:
    """Yield the links to a process's descriptors that may be files."""
    directory = process.open("fd", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in os.listdir(directory):
            try:
                target = os.readlink(name, dir_fd=directory)
            except FileNotFoundError:
                continue
            if target.startswith("/"):  # not a socket or a pipe
                yield f"fd/{name}"
    finally:
        os.close(directory)


def _mappings(process: Process) -> Iterator[str]:
    """Yield a link to each file that a process has mapped."""
    seen = set()
    for line in process.read("maps", _MAX_MAPS).split(b"\n"):
        if not line:
            continue
        span, _, _, device, inode, *_ = line.split(b" ", 5)
        if inode != b"0" and (device, inode) not in seen:
            seen.add((device, inode))
            start, end = (int(address, 16) for address in span.split(b"-"))
            yield f"map_files/{start:x}-{end:x}"


def _command(process: Process) -> str:
    try:
        return printable(process.read("comm").decode("utf-8", "replace").rstrip("\n"))
    except (OSError, GpuhookError):
        return "?"
