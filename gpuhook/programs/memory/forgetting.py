# SPDX-License-Identifier: Apache-2.0
"""Memory limits that nobody can hold on this node, lifted: the ledger alone is changed."""

from __future__ import annotations

from gpuhook.container import live, memory_records
from gpuhook.container.memory_records import Record
from gpuhook.programs.memory import changes, facts
from gpuhook.programs.memory.operation import unlimited
from gpuhook.programs.report import Report
from gpuhook.programs.target import Note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.errors import GpuhookError
    from gpuhook.programs.target import Target

UNHELD = ("GH1250", "GH1787")  # the driver is too old, and cgroup v1
_FORGOTTEN = "no driver was told, only the ledger: {}"


def lifted(target: Target, gpus: Sequence[str], reason: GpuhookError, *, is_dry: bool) -> Report:
    """Lift the limits of a container on `gpus`, whose driver cannot be told for `reason`."""
    records: dict[str, Record | None] = {}
    notes = []
    for before in facts.of(target.entry, target.spec, gpus, None, []):
        granted, now = before.granted, before.record
        if before.gpu not in gpus or (granted is None and now is None):
            continue
        if granted is not None:
            notes.append(changes.LIFTED.format(gpu=before.gpu, limit=facts.amounts(granted)))
        if now is None or now.is_limited:
            records[before.gpu] = Record(unlimited(before.gpu), granted) if granted else None
    plan = live.Plan()
    if records:
        plan.operations.append(Note(target, lambda entry: memory_records.enter(entry, records)))
        notes.append(_FORGOTTEN.format(reason.message))
    report = Report(target, plan, is_dry=is_dry)
    report.notes += notes
    if not is_dry:
        plan.execute(target.held)
    return report
