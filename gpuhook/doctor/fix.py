# SPDX-License-Identifier: Apache-2.0
"""Fixes faults of a node as far as that is safe, and examines the node again.

A fix can uncover a fault that waited behind the fixed one, so this repeats until no finding has a
fix that was not tried.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuhook.errors import GpuhookError
from gpuhook.node_facts.check import FAILED, NOT_APPLICABLE, OK, WARNING, WORST_FIRST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.doctor.examination import Examination
    from gpuhook.node_facts.check import Fix

_ROUNDS = 5
GONE = "gone"  # the check no longer reports the subject


@dataclass(frozen=True, slots=True)
class FixResult:
    """The outcome of one fix: its check, its subject and its description.

    `is_done` is False for a dry run and for a failed fix; `trouble` is why it failed. `before` and
    `after` are the status of the subject, `after` in the last examination.
    """

    check: str
    subject: str
    description: str
    before: str
    after: str = ""
    is_done: bool = False
    trouble: str = ""


def fixable(examination: Examination) -> list[tuple[FixResult, Fix]]:
    """Return the fixes of failures and warnings, in their order, with the results before them."""
    return [
        (FixResult(one.check.id, finding.subject, fix.description, finding.status), fix)
        for one in examination.results
        if (finding := one.finding).status in (FAILED, WARNING) and (fix := finding.fix) is not None
    ]


def planned_fixes(examination: Examination) -> list[FixResult]:
    """Return the fixes that apply_fixes() would make now."""
    return [replace(plan, after=plan.before) for plan, _ in fixable(examination)]


def apply_fixes(
    look: Callable[[], Examination], announce: Callable[[str], None]
) -> tuple[Examination, list[FixResult]]:
    """Make all fixes; return the last examination and the outcomes.

    `look` examines the node again. `announce` gets the description of each fix before it is made.
    """
    examination = look()
    done: list[FixResult] = []
    for _ in range(_ROUNDS):
        tried = {_key(one) for one in done}
        new = [(plan, fix) for plan, fix in fixable(examination) if _key(plan) not in tried]
        if not new:
            break
        done += [_applied(plan, fix, announce) for plan, fix in new]
        examination = look()
    return examination, [replace(one, after=_after(one, examination)) for one in done]


def _key(one: FixResult) -> tuple[str, str, str]:
    return one.check, one.subject, one.description


def _applied(plan: FixResult, fix: Fix, announce: Callable[[str], None]) -> FixResult:
    announce(f"{plan.check}: {plan.description}")
    try:
        fix.apply()
    except GpuhookError as error:
        return replace(plan, trouble=f"{error.code}: {error.message}")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return replace(plan, trouble=f"{where}{error.strerror or error}")
    return replace(plan, is_done=True)


def _after(one: FixResult, examination: Examination) -> str:
    """Return the worst status of the subject; if it has none, the worst good one of the check."""
    of_check = [r.finding for r in examination.results if r.check.id == one.check]
    of_subject = [finding.status for finding in of_check if finding.subject == one.subject]
    good = [finding.status for finding in of_check if finding.status in (OK, NOT_APPLICABLE)]
    return min(of_subject or good, key=WORST_FIRST.index, default=GONE)
