# SPDX-License-Identifier: Apache-2.0
"""The processes of a host. Processes of containers have another root directory."""

from __future__ import annotations

import os
import posixpath
from contextlib import suppress
from dataclasses import dataclass

from gpuhook.host.hot import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_DELETED = " (deleted)"  # the kernel appends it to the name of a removed file


@dataclass(frozen=True, slots=True)
class HostProcess:
    """A process; `program` is the base name of its executable."""

    pid: int
    program: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """The command line, () if the process ended."""
        try:
            with open(f"/proc/{self.pid}/cmdline", "rb") as file:
                content = file.read()
        except OSError:
            return ()
        return tuple(os.fsdecode(word) for word in content.split(b"\0")[:-1])

    @property
    def directory(self) -> str:
        """The working directory as a path on the host, "" if the process ended."""
        try:
            root = os.readlink(f"/proc/{self.pid}/root")
            directory = os.readlink(f"/proc/{self.pid}/cwd")
        except OSError:
            return ""
        return directory if root == "/" else f"/{posixpath.relpath(directory, root)}"

    @property
    def is_trusted(self) -> bool:
        """Whether the real and effective users are root or this user: proc_pid_status(5), Uid.

        Any user can start a program with the name of an engine and any arguments.
        """
        try:
            with open(f"/proc/{self.pid}/status", "rb") as file:
                users = next(line.split()[1:3] for line in file if line.startswith(b"Uid:"))
        except OSError:
            return False
        return {int(one) for one in users} <= {0, os.geteuid()}


def running(root: str) -> Iterator[HostProcess]:
    """Yield the visible processes on the host at `root`."""
    host = os.stat(root)
    for pid in procfs.pids():
        with suppress(OSError):
            program = os.readlink(f"/proc/{pid}/exe").removesuffix(_DELETED)
            if os.path.samestat(os.stat(f"/proc/{pid}/root"), host):
                yield HostProcess(pid, posixpath.basename(program))


def is_run_by_user(program: str) -> bool:
    """Return whether this user runs a program with this name."""
    user = os.geteuid()
    for one in running("/"):
        with suppress(OSError):
            if one.program == program and os.stat(f"/proc/{one.pid}").st_uid == user:
                return True
    return False
