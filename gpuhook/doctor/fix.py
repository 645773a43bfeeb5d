# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a node mended, as far as that is safe, and looked at again.

What one mend makes right can bring to light what waited behind it, so the node is looked at until
there is nothing more to mend that was not tried.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuhook.doctor.check import FAILED, NOT_APPLICABLE, OK, WARNING
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.doctor.check import Mend, Result
    from gpuhook.doctor.examination import Examination

_ROUNDS = 5
_WORST = (FAILED, WARNING, OK, NOT_APPLICABLE)
GONE = "gone"  # the check says nothing of this subject any more


@dataclass(frozen=True, slots=True)
class Mended:
    """One mend: the check and what it is of, the sentence, and what came of it.

    `is_done` is False where it was only shown, or failed: `trouble` says why. `before` and `after`
    are what the check said of the subject, as a status: `after` is that of the last look.
    """

    check: str
    subject: str
    says: str
    before: str
    after: str
    is_done: bool = False
    trouble: str = ""


def to_mend(examination: Examination) -> list[Result]:
    """Return the results that are wrong and can be mended by themselves, in their order."""
    return [
        one
        for one in examination.results
        if one.finding.status in (FAILED, WARNING) and one.finding.mend is not None
    ]


def shown(examination: Examination) -> list[Mended]:
    """Return the mends that would be done now."""
    return [_told(one) for one in to_mend(examination)]


def mend(
    look: Callable[[], Examination], tell: Callable[[str], None]
) -> tuple[Examination, list[Mended]]:
    """Do what can be mended; returns the last examination, and what was done.

    `look` examines the node anew; `tell` is given the sentence of each mend before it is done.
    """
    examination = look()
    done: list[Mended] = []
    for _ in range(_ROUNDS):
        tried = {(one.check, one.subject, one.says) for one in done}
        new = [one for one in to_mend(examination) if _key(one) not in tried]
        if not new:
            break
        done += [_done(one, tell) for one in new]
        examination = look()
    return examination, [replace(one, after=_after(one, examination)) for one in done]


def _done(result: Result, tell: Callable[[str], None]) -> Mended:
    told, mend = _told(result), _mend(result)
    tell(f"{result.check.id}: {mend.says}")
    try:
        mend.apply()
    except GpuhookError as error:
        return replace(told, trouble=f"{error.code}: {error.message}")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return replace(told, trouble=f"{where}{error.strerror or error}")
    return replace(told, is_done=True)


def _told(result: Result) -> Mended:
    check, subject, says = _key(result)
    status = result.finding.status
    return Mended(check, subject, says, before=status, after=status)


def _key(result: Result) -> tuple[str, str, str]:
    return result.check.id, result.finding.subject, _mend(result).says


def _mend(result: Result) -> Mend:
    mend = result.finding.mend
    if mend is None:
        raise AssertionError(f"{result.check.id} has nothing to mend")
    return mend


def _after(one: Mended, examination: Examination) -> str:
    """Return the worst that the check says now of the subject; of all, where of no such one."""
    of_check = [r.finding for r in examination.results if r.check.id == one.check]
    of_subject = [found.status for found in of_check if found.subject == one.subject]
    found = of_subject or [f.status for f in of_check if f.status in (OK, NOT_APPLICABLE)]
    return min(found, key=_WORST.index) if found else GONE
