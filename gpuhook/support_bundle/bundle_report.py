# SPDX-License-Identifier: Apache-2.0
"""The report on a bundle: the document, the summary and the totals."""

from __future__ import annotations

import os
from typing import Any

from gpuhook.host.text_table import counted
from gpuhook.node_facts.check import FAILED, WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.doctor.examination import Examination
    from gpuhook.support_bundle.bundle_contents import Bundle

SCHEMA = "gpuhook/support-bundle-report/v1"
_MOST_NAMED = 3  # of the missing files and readings


def report(path: str | None, bundle: Bundle, found: Examination) -> dict[str, Any]:
    """Return the document of a bundle, whose path is None if it is not written."""
    return {
        "schema": SCHEMA,
        "file": path,
        "bytes": os.stat(path).st_size if path is not None else None,
        "members": list(bundle.members),
        "removed": bundle.removed,
        "left_out": bundle.left_out,
        "failed": [one.check.id for one in found.of(FAILED)],
    }


def keys(counted: list[dict[str, Any]], member: str) -> str:
    """Return the keys of a member, and of the readings in it."""
    keys = {one["what"]: None for one in counted if one["where"].partition(": ")[0] == member}
    return ", ".join(keys) or "-"


def totals(path: str, bundle: Bundle, found: Examination) -> tuple[str, str, str]:
    """Return the phrases on the file, the values that were left out, and doctor's results."""
    removed = sum(one["count"] for one in bundle.removed)
    size = os.stat(path).st_size >> 10
    failed, doubtful = len(found.of(FAILED)), len(found.of(WARNING))
    return (
        f"{path}: {len(bundle.members)} files, {size} KiB",
        f"values left out: {removed}",
        f"doctor: {failed} failed, {counted(doubtful, 'warning')}",
    )


def summary(path: str, bundle: Bundle, found: Examination) -> Iterator[str]:
    """Yield the lines of a short report."""
    file, values, doctor = totals(path, bundle, found)
    yield file
    yield f"{values} (-o table lists their keys)"
    if bundle.left_out:
        names = [one["what"] for one in bundle.left_out[:_MOST_NAMED]]
        others = len(bundle.left_out) - len(names)
        more = f" and {others} more (-o table has the reasons)" if others else ""
        yield f"not in the bundle: {', '.join(names)}{more}"
    yield doctor
