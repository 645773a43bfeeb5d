# SPDX-License-Identifier: Apache-2.0
"""A node examined: every check once, causes before what follows from them."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from gpuhook.doctor.check import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    SECTIONS,
    WARNING,
    Check,
    Finding,
    Result,
)
from gpuhook.errors import GpuhookError, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuhook.doctor.check import ExaminedNode

_WORST = (FAILED, WARNING, OK, NOT_APPLICABLE)


@dataclass(frozen=True, slots=True)
class Examination:
    """The results of all checks, in the order of their sections and, in these, of the checks."""

    results: tuple[Result, ...]

    def of(self, status: str) -> list[Result]:
        """Return the results of that status: the first of the failed ones is the first cause."""
        return [one for one in self.results if one.finding.status == status]

    @property
    def is_well(self) -> bool:
        """Whether no check has failed."""
        return not self.of(FAILED)


def examine(
    node: ExaminedNode, checks: Sequence[Check], chosen: Iterable[str] | None = None
) -> Examination:
    """Return what the checks find of a node; of the `chosen` ids alone, where some are given.

    What a chosen check needs is looked at too, so that a cause is told and not its consequence.
    """
    wanted = {check.id for check in checks} if chosen is None else set(chosen)
    asked = _with_needs(checks, wanted)
    causes: dict[str, list[str]] = {}  # of each check that has failed, or waits: what has failed
    found: dict[str, list[Finding]] = {}
    for check in _ordered(checks):
        if check.id not in asked:
            continue
        waits = list(dict.fromkeys(one for need in check.needs for one in causes.get(need, ())))
        found[check.id] = _looked(node, check, waits)
        if waits:
            causes[check.id] = waits
        elif any(finding.status == FAILED for finding in found[check.id]):
            causes[check.id] = [check.id]
    return Examination(
        tuple(
            Result(check, finding)
            for check in _ordered(checks)
            for finding in sorted(found.get(check.id, ()), key=_rank)
            if check.id in wanted or finding.status == FAILED
        )
    )


def _looked(node: ExaminedNode, check: Check, causes: list[str]) -> list[Finding]:
    if causes:
        return [Finding(NOT_APPLICABLE, f"waits for {', '.join(causes)} to be mended")]
    try:
        return list(check.look(node))
    except (OSError, GpuhookError) as error:
        return [_unseen(error)]
    except Exception as error:  # no mistake of one check's may end the others
        return [_crashed(check, error)]


def _unseen(error: OSError | GpuhookError) -> Finding:
    """Return that a check could not look, and why."""
    if isinstance(error, GpuhookError):
        return Finding(WARNING, f"{error.code}: {error.message}", meaning=error.hint)
    where = str(error.filename or "")
    if isinstance(error, PermissionError):
        said = f"{where or 'the node'} may not be looked at by this user: run as root"
        return Finding(NOT_APPLICABLE, said, looked_at=(where,))
    if error.errno == errno.ENODATA:  # a bundle, made by a doctor that did not ask for it
        return Finding(NOT_APPLICABLE, f"{where}: {error.strerror}", looked_at=(where,))
    said = f"{where or 'the node'} cannot be read: {error.strerror or error}"
    return Finding(WARNING, said, looked_at=(where,))


def _crashed(check: Check, error: Exception) -> Finding:
    kind, reason = type(error).__name__, printable(error)
    return Finding(
        WARNING,
        f"{check.id} met something that it does not understand: {kind}: {reason}",
        meaning="nobody has looked whether this is in order; all other checks were done",
        command=f"gpuhook --debug doctor --checks {check.id} -o wide # and report what it says",
    )


def _rank(finding: Finding) -> int:
    return _WORST.index(finding.status)


def _with_needs(checks: Sequence[Check], wanted: set[str]) -> set[str]:
    by_id = {check.id: check for check in checks}
    asked: set[str] = set()
    rest = [identity for identity in wanted if identity in by_id]
    while rest:
        identity = rest.pop()
        if identity not in asked:
            asked.add(identity)
            rest += by_id[identity].needs
    return asked


def _ordered(checks: Sequence[Check]) -> list[Check]:
    """Return the checks by section; in each, what is needed comes before who needs it."""
    by_id = {check.id: check for check in checks}
    ordered: dict[str, Check] = {}

    def place(check: Check) -> None:
        if check.id in ordered:
            return
        for need in check.needs:
            place(by_id[need])
        ordered[check.id] = check

    for check in sorted(checks, key=lambda one: SECTIONS.index(one.section)):
        place(check)
    return list(ordered.values())
