# SPDX-License-Identifier: Apache-2.0
"""Which container a process is in where no cgroup has the container's name: by its first process.

A config.json may name any cgroup, also one that others are in. So a process is a container's only
if it is in the cgroups of the container's first process, or below, and sees that one's mounts,
which no other container does. Containers of the ledger that have either in common have neither.
"""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Protocol

    from gpuhook.device_plugin.guard.container_processes import About

    class Looked(Protocol):
        """The processes of the host, see container_processes.py."""

        def about(self, pid: int) -> About | None: ...
        def hosts(self) -> frozenset[tuple[int, int]] | None: ...


First = tuple[int, int]  # of a container: a pid, and when it started in clock ticks since boot


@dataclass(frozen=True, slots=True)
class Home:
    """Where a process is: its cgroup in each hierarchy, and which mounts it sees."""

    cgroups: tuple[tuple[str, str], ...]
    mounts: tuple[int, int]

    def holds(self, other: Home) -> bool:
        """Return whether `other` sees the same mounts, from the same cgroups or below."""
        return self.mounts == other.mounts and self.is_above(other)

    def is_above(self, other: Home) -> bool:
        """Return whether `other` is in the same cgroups or below; the root is no such cgroup."""
        theirs = dict(other.cgroups)
        is_own = any(path != "/" for _, path in self.cgroups)
        return is_own and all(_is_below(theirs.get(kind), path) for kind, path in self.cgroups)


def cgroups(content: str) -> tuple[tuple[str, str], ...]:
    """Return the cgroup in each hierarchy, of the content of a /proc/PID/cgroup.

    >>> cgroups("2:cpu,cpuacct:/a:b" + chr(10) + "0::/c" + chr(10))
    (('', '/c'), ('cpu,cpuacct', '/a:b'))
    """
    lines = (line.split(":", 2) for line in content.splitlines() if line.count(":") >= 2)
    return tuple(sorted((kind, path) for _, kind, path in lines))


def container_scopes(kernel: Looked, firsts: Mapping[str, First]) -> dict[str, Home]:
    """Return the homes that containers have for themselves, by id; none where that is in doubt."""
    if not firsts:
        return {}
    hosts = kernel.hosts()
    if hosts is None:
        return {}
    found: dict[str, Home] = {}
    for container, (pid, started) in firsts.items():
        about = kernel.about(pid)
        if about is None or about.started != started or about.home is None:
            continue
        if about.home.mounts not in hosts:
            found[container] = about.home
    shared = _shared(found)
    return {container: home for container, home in found.items() if container not in shared}


def container(about: About, known: Collection[str], homes: Mapping[str, Home]) -> str | None:
    """Return the id of a process's container, None for a process of the host.

    What cgroups are called counts first.
    """
    named = about.member.outermost(known)
    if named is not None or about.home is None:
        return named
    found = [one for one, home in homes.items() if home.holds(about.home)]
    return found[0] if len(found) == 1 else None


def _shared(homes: Mapping[str, Home]) -> set[str]:
    """Return those whose mounts or cgroups are another's as well."""
    found: set[str] = set()
    listed = list(homes.items())
    for place, (one, home) in enumerate(listed):
        for other, theirs in listed[place + 1 :]:
            if home.mounts == theirs.mounts or _overlap(home, theirs):
                found.update((one, other))
    return found


def _overlap(one: Home, other: Home) -> bool:
    return one.is_above(other) or other.is_above(one)


def _is_below(path: str | None, other: str) -> bool:
    if path is None:
        return False
    return path == other or path.startswith(other.rstrip("/") + "/")
