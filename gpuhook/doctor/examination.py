# SPDX-License-Identifier: Apache-2.0
"""Runs the checks on a node, causes before consequences."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from gpuhook.doctor.check_list import section_titles
from gpuhook.errors import GpuhookError, printable
from gpuhook.node_facts.check import (
    FAILED,
    NOT_APPLICABLE,
    WARNING,
    WORST_FIRST,
    Check,
    Finding,
    Result,
    as_findings,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuhook.node_facts.check import ExaminedNode


@dataclass(frozen=True, slots=True)
class Examination:
    """The results of all checks, by section; in a section a check follows those that it needs."""

    results: tuple[Result, ...]

    def of(self, status: str) -> list[Result]:
        """Return the results with that status; the first failed one is the root cause."""
        return [one for one in self.results if one.finding.status == status]

    @property
    def is_well(self) -> bool:
        """Whether no check has failed."""
        return not self.of(FAILED)


def examine(
    node: ExaminedNode, checks: Sequence[Check], chosen: Iterable[str] | None = None
) -> Examination:
    """Return the results of the checks; of those with the `chosen` ids only, unless it is None.

    The checks that a chosen one needs run too: if one of them fails, it is part of the results.
    """
    selected = {check.id for check in checks} if chosen is None else set(chosen)
    required = _with_needs(checks, selected)
    ordered = [check for check in _ordered(checks) if check.id in required]
    causes: dict[str, list[str]] = {}  # of each check that failed or was skipped: the failed ones
    findings: dict[str, list[Finding]] = {}
    for check in ordered:
        waits = list(dict.fromkeys(one for need in check.needs for one in causes.get(need, ())))
        findings[check.id] = _findings(node, check, waits)
        if waits:
            causes[check.id] = waits
        elif any(finding.status == FAILED for finding in findings[check.id]):
            causes[check.id] = [check.id]
    return Examination(
        tuple(
            Result(check, finding)
            for check in ordered
            for finding in sorted(findings[check.id], key=lambda one: WORST_FIRST.index(one.status))
            if check.id in selected or finding.status == FAILED
        )
    )


def _findings(node: ExaminedNode, check: Check, causes: list[str]) -> list[Finding]:
    if causes:
        return [Finding(NOT_APPLICABLE, f"waits for {', '.join(causes)} to be fixed")]
    try:
        return list(as_findings(check.look(node)))
    except (OSError, GpuhookError) as error:
        return [_unreadable(error)]
    except Exception as error:  # an error in one check must not end the others
        return [_crashed(check, error)]


def _unreadable(error: OSError | GpuhookError) -> Finding:
    """Return the finding of a check that could not read the node."""
    if isinstance(error, GpuhookError):
        return Finding(WARNING, f"{error.code}: {error.message}", meaning=error.hint)
    path = str(error.filename or "")
    if isinstance(error, PermissionError):
        message = f"permission denied: {path or 'the node'} (run as root)"
        return Finding(NOT_APPLICABLE, message, looked_at=(path,))
    if error.errno == errno.ENODATA:  # an older doctor made this bundle and did not read the path
        return Finding(NOT_APPLICABLE, f"{path}: {error.strerror}", looked_at=(path,))
    message = f"{path or 'the node'} cannot be read: {error.strerror or error}"
    return Finding(WARNING, message, looked_at=(path,))


def _crashed(check: Check, error: Exception) -> Finding:
    kind, reason = type(error).__name__, printable(error)
    return Finding(
        WARNING,
        f"{check.id} failed with an internal error: {kind}: {reason}",
        meaning="this check has no result; all other checks have run",
        command=f"gpuhook --debug doctor --checks {check.id} -o wide # and report the output",
    )


def _with_needs(checks: Sequence[Check], selected: set[str]) -> set[str]:
    by_id = {check.id: check for check in checks}
    required: set[str] = set()
    rest = [identity for identity in selected if identity in by_id]
    while rest:
        identity = rest.pop()
        if identity not in required:
            required.add(identity)
            rest += by_id[identity].needs
    return required


def _ordered(checks: Sequence[Check]) -> list[Check]:
    """Return the checks by section, each after the checks that it needs."""
    by_id = {check.id: check for check in checks}
    ordered: dict[str, Check] = {}

    def place(check: Check) -> None:
        if check.id in ordered:
            return
        for need in check.needs:
            place(by_id[need])
        ordered[check.id] = check

    sections = list(section_titles())
    for check in sorted(checks, key=lambda one: sections.index(one.section)):
        place(check)
    return list(ordered.values())
