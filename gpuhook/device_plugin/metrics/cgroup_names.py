# SPDX-License-Identifier: Apache-2.0
"""Which container a process is in, by the names that engines give to cgroups.

A pid is the host's: in a pod this needs hostPID. Containers can make cgroups below their own, so
of several names that are known the outermost counts: it is the one that no container has made.
Source: proc(5), /proc/PID/cgroup; the cgroup drivers of runc, containerd, CRI-O, Docker, podman.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

_MAX_SIZE = 1 << 18
_ID = re.compile(r"[0-9a-f]{64}")
# A plugin with a cgroup namespace of its own sees others from where itself is: with the cgroupfs
# driver that may be below kubepods.
_OF_POD = re.compile(r"(?:^|[/-])kubepods(?:[./-]|$)|/\.\./(?:[a-z]+/)?pod[0-9a-f-]{32,36}/")
_OF_USER = re.compile(r"user@[0-9]+\.service")
_MAX_DASHES = 16


@dataclass(frozen=True, slots=True)
class Membership:
    """Where a process is: the names that may be its container's id, the outermost first."""

    names: tuple[str, ...] = ()
    in_pod: bool = False

    def container(self, known: Container[str]) -> str | None:
        """Return the id of the process's container: a `known` one, else what looks like an id.

        Of the latter the innermost, as nodes may be containers too. None: it is in no container.
        """
        for name in self.names:
            if name in known:
                return name
        return next((name for name in reversed(self.names) if _ID.fullmatch(name)), None)

    def outermost(self, known: Container[str]) -> str | None:
        """Return the id that no container has made: a `known` one, or the first like an id.

        For those who act on it, on a node that is no container itself: a container may call a
        cgroup below its own like another container, known or not. So may any user of the host
        below the service that systemd runs for them, so what is there is nobody's.
        """
        for name in self.names:
            if name in known or _ID.fullmatch(name):
                return name
            if _OF_USER.fullmatch(name):
                return None
        return None


def of_pid(pid: int, proc: str = "/proc") -> Membership:
    """Return where process `pid` is; nowhere if it has ended or may not be looked at."""
    try:
        return parse(files.read(f"{proc}/{pid}/cgroup", _MAX_SIZE).decode("utf-8", "replace"))
    except (OSError, GpuhookError):
        return Membership()


def parse(content: str) -> Membership:
    """Return what the content of a /proc/PID/cgroup tells, of either version.

    >>> parse("0::/system.slice/docker-" + "ab" * 32 + ".scope").container(()) == "ab" * 32
    True
    """
    paths = dict.fromkeys(line.split(":", 2)[2] for line in content.splitlines() if _is_line(line))
    names: dict[str, None] = {}
    for path in paths:
        for part in path.split("/"):
            names.update(dict.fromkeys(_names(part)))
    return Membership(tuple(names), any(_OF_POD.search(path) for path in paths))


def _is_line(line: str) -> bool:
    return line.count(":") >= 2


def _names(part: str) -> list[str]:
    """Return what may be an id in one part of a path: crio-<id>.scope, slice:prefix:<id>, <id>.

    Ids may have dashes themselves, so in a scope's name all that stands behind one may be the id.
    """
    if part in ("", ".", ".."):
        return []
    if not part.endswith(".scope"):
        return [part, part.rpartition(":")[2]]
    pieces = part.removesuffix(".scope").split("-", _MAX_DASHES)
    return ["-".join(pieces[count:]) for count in range(len(pieces))]
