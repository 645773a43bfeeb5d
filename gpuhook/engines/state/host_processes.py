# SPDX-License-Identifier: Apache-2.0
"""The processes of a host. A process of a container has another root directory."""

from __future__ import annotations

import os
import posixpath
from contextlib import suppress
from dataclasses import dataclass

from gpuhook.host.hot import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_DELETED = " (deleted)"  # what the kernel adds to the name of a removed file


@dataclass(frozen=True, slots=True)
class HostProcess:
    """A process; `program` is the base name of the file that it executes."""

    pid: int
    program: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return its command line, () if it has ended."""
        try:
            with open(f"/proc/{self.pid}/cmdline", "rb") as file:
                content = file.read()
        except OSError:
            return ()
        return tuple(os.fsdecode(word) for word in content.split(b"\0")[:-1])

    @property
    def directory(self) -> str:
        """Return its working directory as a path of the host, "" if it has ended."""
        try:
            root = os.readlink(f"/proc/{self.pid}/root")
            directory = os.readlink(f"/proc/{self.pid}/cwd")
        except OSError:
            return ""
        return directory if root == "/" else f"/{posixpath.relpath(directory, root)}"

    @property
    def is_trusted(self) -> bool:
        """Whether real and effective user are root or ourselves: proc_pid_status(5), Uid.

        Any user can start a program with the name of an engine and arguments of any kind.
        """
        try:
            with open(f"/proc/{self.pid}/status", "rb") as file:
                users = next(line.split()[1:3] for line in file if line.startswith(b"Uid:"))
        except OSError:
            return False
        return {int(one) for one in users} <= {0, os.geteuid()}


def running(root: str) -> Iterator[HostProcess]:
    """Yield the processes of the host at `root`, as far as this process may see them."""
    host = os.stat(root)
    for pid in procfs.pids():
        with suppress(OSError):
            program = os.readlink(f"/proc/{pid}/exe").removesuffix(_DELETED)
            if os.path.samestat(os.stat(f"/proc/{pid}/root"), host):
                yield HostProcess(pid, posixpath.basename(program))
