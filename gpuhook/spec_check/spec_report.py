# SPDX-License-Identifier: Apache-2.0
"""The faults of spec files: of each file, and conflicts between files."""

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
class SpecReport:
    """A spec file: its spec, or the fault that makes it invalid; and its findings."""

    path: str
    spec: Spec | None = None
    error: GpuhookError | None = None
    findings: tuple[SpecFinding, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether containers can get the devices of the file."""
        return self.error is None and all(one.level != ERROR for one in self.findings)


def check_file(path: str, *, is_here: bool) -> SpecReport:
    """Return the report of one file; `is_here`: it is also checked against this host."""
    try:
        found = spec_file.read(path)
        validate.check(found, path, is_read=True)
    except GpuhookError as error:
        return SpecReport(path, error=error)
    return SpecReport(
        path, found, findings=tuple(host_check.findings(found, path)) if is_here else ()
    )


def conflicts(files: Iterable[SpecReport]) -> dict[str, list[SpecFinding]]:
    """Return path -> findings on the devices that another file describes too.

    In one directory that is an error: then no device of that name exists. A later directory
    overrides. `files` are ordered by priority, lowest first.
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
        directory = os.path.dirname(path)
        rivals = [o for o in paths if o != path and os.path.dirname(o) == directory]
        if rivals:
            message = f"{listed}: also described by {', '.join(rivals)}: engines use neither"
            yield path, SpecFinding(ERROR, "/devices", message)
        elif directory != last:
            message = f"{listed}: {paths[-1]} also describes them and overrides this file"
            yield path, SpecFinding(WARNING, "/devices", message)


def directory_reports(dirs: list[str], *, is_here: bool) -> list[SpecReport]:
    """Return the reports of all spec files in `dirs`, lowest priority first.

    A directory and a link to it are one directory.
    """
    known: dict[tuple[int, int], str] = {}
    for directory in dirs:
        try:
            found = os.stat(directory)
        except OSError:
            continue
        known.setdefault((found.st_dev, found.st_ino), directory)
    reports = [
        check_file(path, is_here=is_here)
        for directory in known.values()
        for path in registry.files(directory)
        if os.path.exists(path)
    ]
    against = conflicts(reports)
    return [
        SpecReport(one.path, one.spec, one.error, (*one.findings, *against.get(one.path, ())))
        for one in reports
    ]
