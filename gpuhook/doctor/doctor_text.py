# SPDX-License-Identifier: Apache-2.0
"""An examination as text: the root cause on top, then the sections."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from gpuhook.doctor import fix
from gpuhook.doctor.check_list import presence_checks, section_titles
from gpuhook.errors import printable
from gpuhook.node_facts.check import ENGINES, FAILED, NOT_APPLICABLE, OK, WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuhook.doctor.examination import Examination
    from gpuhook.doctor.fix import FixResult
    from gpuhook.node_facts.check import Result

_WORDS = {OK: "ok", WARNING: "warning", FAILED: "FAILED", NOT_APPLICABLE: "-"}
_COLOURS = {OK: "32", WARNING: "33", FAILED: "1;31", NOT_APPLICABLE: "2"}
_WRONG = (FAILED, WARNING)
_ROOT_CAUSE = "Root cause: "
_INDENT = " " * 11
_MAX_LINE = 4096
_MANY = 4  # more subjects of one check than this share a line


def lines(
    found: Examination, *, is_wide: bool = False, is_all: bool = False, has_colour: bool = False
) -> list[str]:
    """Return the faults as lines; all checks if `is_all`, also every subject if `is_wide`."""
    first = found.of(FAILED)[:1]
    text = [line for one in first for line in _root_cause(one)]
    results = [
        one
        for one in found.results
        if is_all or is_wide or (one.finding.status in _WRONG and one not in first)
    ]
    if not is_wide:
        repeated = _repeated(results)
        results = [one for one in results if one.finding.message not in repeated]
        text += _repeated_lines(repeated, has_colour=has_colour)
    # A check may need one of a later section, so the results of a section need not be in a row.
    headings = list(dict.fromkeys(_heading(one) for one in results))
    order = list(section_titles())
    results.sort(key=lambda one: (order.index(one.check.section), headings.index(_heading(one))))
    width = max((len(one.check.id) for one in results), default=0)
    for heading, in_section in groupby(results, key=_heading):
        text += ["", heading] if text else [heading]
        group = list(in_section)
        apart = [] if is_wide else [o for o in group if o.finding.status == NOT_APPLICABLE]
        rest = [one for one in group if one not in apart]
        for _, one_check in groupby(rest, key=lambda one: one.check.id):
            text += _check(list(one_check), width, first, is_wide=is_wide, has_colour=has_colour)
        text += _not_applicable(apart, has_colour=has_colour)
    return text


def _repeated(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Return the faults that many checks have in common, such as an unreadable /proc."""
    found: dict[str, list[Result]] = {}
    for one in results:
        if one.finding.status in _WRONG and not one.finding.command:
            found.setdefault(one.finding.message, []).append(one)
    return {
        message: same
        for message, same in found.items()
        if len({one.check.id for one in same}) > _MANY
    }


def _repeated_lines(repeated: dict[str, list[Result]], *, has_colour: bool) -> Iterator[str]:
    """Yield a line for each fault of many checks, with their number."""
    for message, same in repeated.items():
        status = FAILED if any(one.finding.status == FAILED for one in same) else WARNING
        count = len({one.check.id for one in same})
        word = _word(status, has_colour=has_colour)
        yield f"  {word} {_shown(message)} ({count} checks; -o wide lists them)"


def fix_lines(fixes: Sequence[FixResult] | None) -> list[str]:
    """Return what --fix has changed, or would change, as lines; [] without --fix."""
    if fixes is None:
        return []
    if not fixes:
        return ["", "Nothing can be fixed automatically."]
    return ["", "Fixes:", *(_shown(f"  {_fix(one)}") for one in fixes)]


def summary(found: Examination) -> str:
    """Return the number of results with each status, and whether the node has no GPU."""
    return "; ".join([count(found), *without_gpu(found)])


def count(found: Examination) -> str:
    """Return the number of results with each status."""
    counts = Counter(one.finding.status for one in found.results)
    warnings = "warning" if counts[WARNING] == 1 else "warnings"
    words = [(FAILED, "failed"), (WARNING, warnings), (OK, "ok")]
    words.append((NOT_APPLICABLE, "not applicable"))
    return ", ".join(f"{counts[status]} {word}" for status, word in words if counts[status])


def without_gpu(found: Examination) -> list[str]:
    """Return the messages that the node has no GPU of a vendor, [] if it has one of any."""
    presence = presence_checks()
    present = [one.finding for one in found.results if one.check.id in presence]
    if any(one.status != NOT_APPLICABLE for one in present):
        return []
    return [one.message for one in present]


def _root_cause(first: Result) -> Iterator[str]:
    yield _shown(f"{_ROOT_CAUSE}{first.check.id}: {first.finding.message}")
    yield from _advice(first, " " * len(_ROOT_CAUSE))


def _heading(result: Result) -> str:
    section = result.check.section
    title = section_titles()[section]
    return f"{title}: {result.check.id.partition('.')[0]}" if section == ENGINES else title


def _check(
    results: list[Result], width: int, first: list[Result], *, is_wide: bool, has_colour: bool
) -> Iterator[str]:
    """Yield the lines of one check; one line stands for many healthy subjects.

    The advice for the root cause, `first`, is above all sections and is not repeated.
    """
    wrong = [one for one in results if one.finding.status in _WRONG]
    rest = [one for one in results if one.finding.status not in _WRONG]
    shown = rest if is_wide or len(rest) <= _MANY else rest[:1]
    for one in [*wrong, *shown]:
        status = one.finding.status
        word = _word(status, has_colour=has_colour)
        yield f"  {word} {one.check.id:<{width}}  {_shown(one.finding.message)}"
        if status in _WRONG and one not in first:
            yield from _advice(one, _INDENT)
        if is_wide and one.finding.looked_at:
            yield _shown(f"{_INDENT}looked at: {', '.join(one.finding.looked_at)}")
    if len(shown) < len(rest):
        yield f"{_INDENT}and {len(rest) - len(shown)} more of {results[0].check.id}"


def _not_applicable(results: list[Result], *, has_colour: bool) -> Iterator[str]:
    """Yield a line for each reason why checks do not apply, with the ids of the checks."""
    ids: dict[str, list[str]] = {}
    for one in results:
        ids.setdefault(one.finding.message, []).append(one.check.id)
    word = _word(NOT_APPLICABLE, has_colour=has_colour)
    for reason, checks in ids.items():
        yield f"  {word} " + _shown(f"{reason} ({', '.join(dict.fromkeys(checks))})")


def _word(status: str, *, has_colour: bool) -> str:
    word = f"{_WORDS[status]:<8}"
    return f"\x1b[{_COLOURS[status]}m{word}\x1b[0m" if has_colour else word


def _advice(result: Result, indent: str) -> Iterator[str]:
    finding = result.finding
    if finding.meaning:
        yield _shown(f"{indent}meaning: {finding.meaning}")
    if finding.command:
        yield _shown(f"{indent}fix:     {finding.command}")
    if finding.fix is not None:
        yield _shown(f"{indent}--fix:   {finding.fix.description}")


def _fix(one: FixResult) -> str:
    change = f"{one.check}: {one.description}"
    if one.trouble:
        return f"failed: {change}: {one.trouble}"
    if not one.is_done:
        return f"would do: {change}"
    after = "fixed" if one.after in (OK, NOT_APPLICABLE, fix.GONE) else one.after
    return f"done: {change} (was {one.before}, is {after})"


def _shown(text: str) -> str:
    return printable(text, _MAX_LINE)
