# SPDX-License-Identifier: Apache-2.0
"""Which container a process on a GPU is in: by what its cgroup is called, else by its mounts.

Nobody acts on the answer, it is shown. Pids are those of the host, as the driver tells them.
"""

from __future__ import annotations

import os

from gpuhook.device_plugin.guard.container_processes import Processes
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.containers.warm.runtime_state import Found
    from gpuhook.device_plugin.guard.container_processes import ProcessFacts

HOST = "host"
ENDED, HIDDEN, STRANGE = "ended", "hidden", "strange"
_MAX_NAME = 256


class Members:
    """The containers that are known, and whose a process is."""

    def __init__(self, known: Iterable[Found], ids: Iterable[str] = ()) -> None:
        """Take the containers that run, and the ids of others that may."""
        self._processes = Processes()
        self._firsts = {found.id: found.pid for found in known if found.pid}
        self._known = frozenset((*self._firsts, *ids))
        self._by_mounts: dict[tuple[int, int], str] | None = None
        self._hosts = self._processes.host_mounts()
        trouble = self._processes.trouble()
        self.trouble = fault("GH1953") if trouble is not None else None

    def of(self, pid: int) -> tuple[str, str]:
        """Return (id of the container, "") of a process; ("", why) where it has none.

        The reason is HOST, ENDED, HIDDEN where it may not be looked at or its pid says nothing
        here, STRANGE for one of a container that nobody knows.
        """
        if self.trouble is not None:
            return "", HIDDEN
        about = self._processes.about(pid)
        if about is None:
            return "", ENDED
        named = about.member.container(self._known)
        if named is not None:
            return named, ""
        return self._by_home(about)

    def _by_home(self, about: ProcessFacts) -> tuple[str, str]:
        if about.scope is None or self._hosts is None:
            return "", HIDDEN
        mounts = about.scope.mounts
        if mounts in self._hosts:
            return "", HOST
        found = self._mounts().get(mounts, "")
        return found, "" if found else STRANGE

    def _mounts(self) -> dict[tuple[int, int], str]:
        """Return the container that sees each mount namespace, asked for only where needed."""
        if self._by_mounts is None:
            self._by_mounts = {}
            for identity, pid in self._firsts.items():
                try:
                    seen = os.stat(f"/proc/{pid}/ns/mnt")
                except OSError:
                    continue
                self._by_mounts[seen.st_dev, seen.st_ino] = identity
        return self._by_mounts


def name_of(pid: int) -> str:
    """Return what a process is called, "" where that may not be known."""
    try:
        content = files.read(f"/proc/{pid}/comm", _MAX_NAME)
    except (OSError, GpuhookError):
        return ""
    return content.decode("utf-8", "replace").rstrip("\n")
