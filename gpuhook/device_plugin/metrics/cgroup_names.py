# SPDX-License-Identifier: Apache-2.0
"""Finds the container of a process by the cgroup names that engines use.

A pid is the host's: in a pod this needs hostPID. A container can create cgroups below its own, so
the outermost of several known names is the container's: no container has created that one.
Source: proc(5), /proc/PID/cgroup; the cgroup drivers of runc, containerd, CRI-O, Docker, podman.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files, procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

_MAX_SIZE = 1 << 18
_ID = re.compile(r"[0-9a-f]{64}")
# In its own cgroup namespace the plugin sees paths relative to its own cgroup, which may be below
# kubepods with the cgroupfs driver.
_OF_POD = re.compile(r"(?:^|[/-])kubepods(?:[./-]|$)|/\.\./(?:[a-z]+/)?pod[0-9a-f-]{32,36}/")
_OF_USER = re.compile(r"user@[0-9]+\.service")
_MAX_DASHES = 16


@dataclass(frozen=True, slots=True)
class Membership:
    """The cgroup names of a process that may be its container's id, the outermost first."""

    names: tuple[str, ...] = ()
    in_pod: bool = False

    def container(self, known: Container[str]) -> str | None:
        """Return the id of the process's container: a `known` name, else one that looks like an id.

        Of several such names the innermost, since a node may be a container, too. None: the process
        is in no container.
        """
        for name in self.names:
            if name in known:
                return name
        return next((name for name in reversed(self.names) if _ID.fullmatch(name)), None)

    def outermost(self, known: Container[str]) -> str | None:
        """Return the id that no container can forge: the first name that is known or like an id.

        For a caller that acts on it, on a node that is not a container: a container may give a
        cgroup below its own the name of another container. So may a user of the host below the
        user's systemd service, so names there belong to no container.
        """
        for name in self.names:
            if name in known or _ID.fullmatch(name):
                return name
            if _OF_USER.fullmatch(name):
                return None
        return None


def of_pid(pid: int, proc: str = "/proc") -> Membership:
    """Return the names for a process, none if it has exited or cannot be read."""
    try:
        return parse(files.read(f"{proc}/{pid}/cgroup", _MAX_SIZE))
    except (OSError, GpuhookError):
        return Membership()


def parse(content: bytes) -> Membership:
    """Parse the content of /proc/PID/cgroup, of version 1 or 2.

    >>> parse(b"0::/system.slice/docker-" + b"ab" * 32 + b".scope").container(()) == "ab" * 32
    True
    """
    paths = dict.fromkeys(os.fsdecode(path) for _, _, path in procfs.cgroups(content))
    names: dict[str, None] = {}
    for path in paths:
        for part in path.split("/"):
            names.update(dict.fromkeys(_names(part)))
    return Membership(tuple(names), any(_OF_POD.search(path) for path in paths))


def _names(part: str) -> list[str]:
    """Return the possible ids in one part of a path: crio-<id>.scope, slice:prefix:<id>, <id>.

    An id may contain dashes, so in a scope's name the id may start after any dash.
    """
    if part in ("", ".", ".."):
        return []
    if not part.endswith(".scope"):
        return [part, part.rpartition(":")[2]]
    pieces = part.removesuffix(".scope").split("-", _MAX_DASHES)
    return ["-".join(pieces[count:]) for count in range(len(pieces))]
