# SPDX-License-Identifier: Apache-2.0
"""An examination in the lines that a person reads: the first cause on top, then the sections."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from gpuhook.doctor import fix
from gpuhook.doctor.check import (
    CONTAINERS,
    DEVICES,
    DRIVER,
    ENGINES,
    FAILED,
    GPUHOOK,
    GPUS,
    HOST,
    KUBERNETES,
    NOT_APPLICABLE,
    OK,
    SECTIONS,
    SPECS,
    WARNING,
)
from gpuhook.errors import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuhook.doctor.check import Result
    from gpuhook.doctor.examination import Examination
    from gpuhook.doctor.fix import Mended

_TITLES = {
    DRIVER: "Driver",
    DEVICES: "Device nodes",
    GPUS: "GPUs",
    SPECS: "CDI specs",
    HOST: "Host",
    ENGINES: "Engines",
    KUBERNETES: "Kubernetes",
    GPUHOOK: "gpuhook itself",
    CONTAINERS: "Running containers",
}
_WORDS = {OK: "ok", WARNING: "warning", FAILED: "FAILED", NOT_APPLICABLE: "-"}
_COLOURS = {OK: "32", WARNING: "33", FAILED: "1;31", NOT_APPLICABLE: "2"}
_WRONG = (FAILED, WARNING)
_INDENT = " " * 11
_MAX_LINE = 4096
_MANY = 4  # subjects of one check, each with a line of its own


def lines(
    found: Examination, *, is_wide: bool = False, is_quiet: bool = False, has_colour: bool = False
) -> list[str]:
    """Return the examination as lines: `is_quiet` has what is wrong alone, `is_wide` has all."""
    told = list(_first(found))
    first = found.of(FAILED)[:1]
    results = [
        one
        for one in found.results
        if not is_quiet or (one.finding.status in _WRONG and one not in first)
    ]
    # A check may wait for one of a later section: each section is told once all the same.
    results = _together_by(_heading, results)
    width = max((len(one.check.id) for one in results), default=0)
    for heading, in_section in groupby(results, key=_heading):
        told += ["", heading] if told else [heading]
        group = list(in_section)
        apart = [] if is_wide else [o for o in group if o.finding.status == NOT_APPLICABLE]
        rest = [one for one in group if one not in apart]
        for _, one_check in groupby(rest, key=lambda one: one.check.id):
            told += _check(list(one_check), width, first, is_wide=is_wide, has_colour=has_colour)
        told += _together(apart, has_colour=has_colour)
    return told


def mended(done: Sequence[Mended] | None) -> list[str]:
    """Return what --fix has done, or would do, as lines; [] without it."""
    if done is None:
        return []
    if not done:
        return ["", "Nothing can be mended by itself."]
    return ["", "Mended:", *(_shown(f"  {_mended(one)}") for one in done)]


def summary(found: Examination) -> str:
    """Return how many results there are of each status, and whether there is no GPU to look at."""
    counted = Counter(one.finding.status for one in found.results)
    words = [
        (FAILED, "failed"),
        (WARNING, "to be warned of"),
        (OK, "ok"),
        (NOT_APPLICABLE, "not applicable"),
    ]
    told = ", ".join(f"{counted[status]} {word}" for status, word in words if counted[status])
    return "; ".join([told, *without_gpu(found)])


def without_gpu(found: Examination) -> list[str]:
    """Return that there is no GPU to look at, [] where there is one."""
    return [one.finding.said for one in found.of(NOT_APPLICABLE) if one.check.id == "driver.gpu"]


def _first(found: Examination) -> Iterator[str]:
    failed = found.of(FAILED)
    if failed:
        first = failed[0]
        yield _shown(f"First: {first.check.id}: {first.finding.said}")
        yield from _cure(first, "       ")


def _together_by(key: Callable[[Result], str], results: list[Result]) -> list[Result]:
    """Return the results by section and key, in the order in which the keys came in each."""
    keys = list(dict.fromkeys(key(one) for one in results))
    return sorted(
        results, key=lambda one: (SECTIONS.index(one.check.section), keys.index(key(one)))
    )


def _heading(result: Result) -> str:
    section = result.check.section
    title = _TITLES[section]
    return f"{title}: {result.check.id.partition('.')[0]}" if section == ENGINES else title


def _check(
    results: list[Result], width: int, first: list[Result], *, is_wide: bool, has_colour: bool
) -> Iterator[str]:
    """Yield the lines of one check; of many subjects that are well, one line stands for all.

    The cure of what stands `first`, above all sections, is not told twice.
    """
    wrong = [one for one in results if one.finding.status in _WRONG]
    rest = [one for one in results if one.finding.status not in _WRONG]
    shown = rest if is_wide or len(rest) <= _MANY else rest[:1]
    for one in [*wrong, *shown]:
        status = one.finding.status
        word = _word(status, has_colour=has_colour)
        yield f"  {word} {one.check.id:<{width}}  {_shown(one.finding.said)}"
        if status in _WRONG and one not in first:
            yield from _cure(one, _INDENT)
        if is_wide and one.finding.looked_at:
            yield _shown(f"{_INDENT}looked at: {', '.join(one.finding.looked_at)}")
    if len(shown) < len(rest):
        yield f"{_INDENT}and {len(rest) - len(shown)} more of {results[0].check.id}"


def _together(results: list[Result], *, has_colour: bool) -> Iterator[str]:
    """Yield a line for each reason why checks do not apply, with their ids."""
    ids: dict[str, list[str]] = {}
    for one in results:
        ids.setdefault(one.finding.said, []).append(one.check.id)
    word = _word(NOT_APPLICABLE, has_colour=has_colour)
    for said, checks in ids.items():
        yield f"  {word} " + _shown(f"{said} ({', '.join(dict.fromkeys(checks))})")


def _word(status: str, *, has_colour: bool) -> str:
    word = f"{_WORDS[status]:<8}"
    return f"\x1b[{_COLOURS[status]}m{word}\x1b[0m" if has_colour else word


def _cure(result: Result, indent: str) -> Iterator[str]:
    finding = result.finding
    if finding.meaning:
        yield _shown(f"{indent}meaning: {finding.meaning}")
    if finding.command:
        yield _shown(f"{indent}to mend: {finding.command}")
    if finding.mend is not None:
        yield _shown(f"{indent}--fix:   {finding.mend.says}")


def _mended(one: Mended) -> str:
    what = f"{one.check}: {one.says}"
    if one.trouble:
        return f"failed: {what}: {one.trouble}"
    if not one.is_done:
        return f"would do: {what}"
    after = "as it should be" if one.after in (OK, NOT_APPLICABLE, fix.GONE) else one.after
    return f"done: {what} (was {one.before}, is {after})"


def _shown(text: str) -> str:
    return printable(text, _MAX_LINE)
