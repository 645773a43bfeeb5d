# SPDX-License-Identifier: Apache-2.0
"""An examination as a JSON document; gpuhook/schemas/doctor.json describes it."""

from __future__ import annotations

from typing import Any

from gpuhook.node_facts.check import FAILED, NOT_APPLICABLE, OK, WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuhook.doctor.examination import Examination
    from gpuhook.doctor.fix import FixResult
    from gpuhook.node_facts.check import Check, Result

SCHEMA = "gpuhook/doctor/v1"
LIST_SCHEMA = "gpuhook/doctor-list/v1"
_KEYS = {OK: "ok", WARNING: "warning", FAILED: "failed", NOT_APPLICABLE: "not_applicable"}


def doctor_document(
    examination: Examination, root: str, *, is_live: bool, fixes: Sequence[FixResult] | None = None
) -> dict[str, Any]:
    """Return the document of an examination of the node whose files are in `root`.

    `first` is the id of the check with the root cause, null if no check failed. `mended` is null
    unless --fix was used.
    """
    failed = examination.of(FAILED)
    return {
        "schema": SCHEMA,
        "root": root,
        "live": is_live,
        "well": examination.is_well,
        "first": failed[0].check.id if failed else None,
        "counts": {key: len(examination.of(status)) for status, key in _KEYS.items()},
        "results": [_result(one) for one in examination.results],
        "mended": None if fixes is None else [_fix(one) for one in fixes],
    }


def listing(checks: Iterable[Check]) -> dict[str, Any]:
    """Return the document of the list of checks."""
    return {
        "schema": LIST_SCHEMA,
        "checks": [
            {
                "id": check.id,
                "section": check.section,
                "title": check.title,
                "needs": list(check.needs),
            }
            for check in checks
        ],
    }


def _result(result: Result) -> dict[str, Any]:
    check, finding = result.check, result.finding
    return {
        "id": check.id,
        "section": check.section,
        "title": check.title,
        "status": finding.status,
        "subject": finding.subject,
        "said": finding.message,
        "meaning": finding.meaning,
        "command": finding.command,
        "looked_at": list(finding.looked_at),
        "mend": finding.fix.description if finding.fix else None,
    }


def _fix(one: FixResult) -> dict[str, Any]:
    return {
        "id": one.check,
        "subject": one.subject,
        "says": one.description,
        "done": one.is_done,
        "trouble": one.trouble or None,
        "before": one.before,
        "after": one.after,
    }
