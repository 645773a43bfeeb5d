# SPDX-License-Identifier: Apache-2.0
"""Finds the container of a process whose cgroup does not have the container's name.

A config.json may name any cgroup, also a shared one. So a process belongs to a container only if it
is in the cgroups of the container's first process, or below, and has the same mount namespace.
Containers in the ledger that share cgroups or mounts have no scope.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.host.hot import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpuhook.device_plugin.guard.container_processes import Processes, ProcessFacts

# The first process of a container: its pid, and its start in clock ticks since boot.
FirstProcess = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ProcessScope:
    """The cgroups of a process by hierarchy, and its mount namespace."""

    cgroups: tuple[tuple[str, str], ...]
    mounts: tuple[int, int]

    def holds(self, other: ProcessScope) -> bool:
        """Return whether `other` has the same mounts, and the same cgroups or cgroups below."""
        return self.mounts == other.mounts and self.is_above(other)

    def is_above(self, other: ProcessScope) -> bool:
        """Return whether `other` is in the same cgroups or below, not counting the root cgroup."""
        theirs = dict(other.cgroups)
        is_own = any(path != "/" for _, path in self.cgroups)
        return is_own and all(_is_below(theirs.get(kind), path) for kind, path in self.cgroups)


def cgroups(content: bytes) -> tuple[tuple[str, str], ...]:
    """Parse /proc/PID/cgroup: the cgroup in each hierarchy.

    >>> cgroups(b"2:cpu,cpuacct:/a:b" + bytes([10]) + b"0::/c")
    (('', '/c'), ('cpu,cpuacct', '/a:b'))
    """
    return tuple(
        sorted(
            (os.fsdecode(b",".join(controllers)), os.fsdecode(path))
            for _, controllers, path in procfs.cgroups(content)
        )
    )


def container_scopes(
    kernel: Processes, firsts: Mapping[str, FirstProcess]
) -> dict[str, ProcessScope]:
    """Return the unambiguous scopes of containers, by id."""
    if not firsts:
        return {}
    hosts = kernel.host_mounts()
    if hosts is None:
        return {}
    scopes: dict[str, ProcessScope] = {}
    for container, (pid, started) in firsts.items():
        about = kernel.about(pid)
        if about is None or about.started != started or about.scope is None:
            continue
        if about.scope.mounts not in hosts:
            scopes[container] = about.scope
    shared = _shared(scopes)
    return {container: scope for container, scope in scopes.items() if container not in shared}


def container(
    about: ProcessFacts, known: Collection[str], scopes: Mapping[str, ProcessScope]
) -> str | None:
    """Return the id of a process's container, None for a process of the host.

    Names of cgroups have priority.
    """
    named = about.member.outermost(known)
    if named is not None or about.scope is None:
        return named
    matches = [one for one, scope in scopes.items() if scope.holds(about.scope)]
    return matches[0] if len(matches) == 1 else None


def _shared(scopes: Mapping[str, ProcessScope]) -> set[str]:
    """Return the containers that share mounts or cgroups with another one."""
    shared: set[str] = set()
    items = list(scopes.items())
    for index, (one, scope) in enumerate(items):
        for other, theirs in items[index + 1 :]:
            overlap = scope.is_above(theirs) or theirs.is_above(scope)
            if scope.mounts == theirs.mounts or overlap:
                shared.update((one, other))
    return shared


def _is_below(path: str | None, other: str) -> bool:
    if path is None:
        return False
    return path == other or path.startswith(other.rstrip("/") + "/")
