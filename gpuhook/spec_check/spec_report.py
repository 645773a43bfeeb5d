# SPDX-License-Identifier: Apache-2.0
"""What is to be said of spec files: each by itself, and what they say against each other."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.cdi import spec_file, validate
from gpuhook.cdi.hot import registry
from gpuhook.errors import GpuhookError
from gpuhook.spec_check import host_check
from gpuhook.spec_check.host_check import ERROR, WARNING, SpecFinding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.cdi.hot.container_edits import Spec

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Judged:
    """A spec file: its spec, or the fault that makes it none; and what else is wrong with it."""

    path: str
    spec: Spec | None = None
    error: GpuhookError | None = None
    findings: tuple[SpecFinding, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether nothing is wrong that keeps a container from what the file describes."""
        return self.error is None and all(one.level != ERROR for one in self.findings)


def check_file(path: str, *, is_here: bool) -> Judged:
    """Return what is to be said of one file; with `is_here` also against this host."""
    try:
        found = spec_file.read(path)
        validate.check(found, path, is_read=True)
    except GpuhookError as error:
        return Judged(path, error=error)
    return Judged(path, found, findings=tuple(host_check.findings(found, path)) if is_here else ())


def contradictions(files: Iterable[Judged]) -> dict[str, list[SpecFinding]]:
    """Return, by path, what files say that another one says too.

    In one directory that is an error, as no device of that name exists then; a later directory
    wins. Files come in the order of priority, lowest first.
    """
    owners: dict[str, list[str]] = {}
    for one in files:
        for device in (one.spec or {}).get("devices", ()):
            kind = (one.spec or {}).get("kind")
            owners.setdefault(f"{kind}={device['name']}", []).append(one.path)
    shared: dict[tuple[str, ...], list[str]] = {}
    for name, holders in owners.items():
        if len(holders) > 1:
            shared.setdefault(tuple(holders), []).append(name)
    found: dict[str, list[SpecFinding]] = {}
    for paths, names in shared.items():
        for path, finding in _between(paths, names):
            found.setdefault(path, []).append(finding)
    return found


def _between(paths: tuple[str, ...], names: list[str]) -> Iterable[tuple[str, SpecFinding]]:
    last = os.path.dirname(paths[-1])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    listed = ", ".join(names[:_SHOWN]) + more
    for path in paths:
        beside = [other for other in paths if other != path]
        rivals = [other for other in beside if os.path.dirname(other) == os.path.dirname(path)]
        if rivals:
            said = f"{listed}: also described by {', '.join(rivals)}: neither of them counts"
            yield path, SpecFinding(ERROR, "/devices", said)
        elif os.path.dirname(path) != last:
            said = f"{listed}: {paths[-1]} describes them too, and wins"
            yield path, SpecFinding(WARNING, "/devices", said)


def of_directories(dirs: list[str], *, is_here: bool) -> list[Judged]:
    """Return what is to be said of every spec file in `dirs`, lowest priority first.

    A directory that is a link to another one is looked at once.
    """
    known: dict[tuple[int, int], str] = {}
    for directory in dirs:
        try:
            found = os.stat(directory)
        except OSError:
            continue
        known.setdefault((found.st_dev, found.st_ino), directory)
    judged = [
        check_file(path, is_here=is_here)
        for directory in known.values()
        for path in registry.files(directory)
        if os.path.exists(path)
    ]
    against = contradictions(judged)
    return [
        Judged(one.path, one.spec, one.error, (*one.findings, *against.get(one.path, ())))
        for one in judged
    ]
