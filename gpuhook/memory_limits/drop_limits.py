# SPDX-License-Identifier: Apache-2.0
"""Lifted memory limits that this node cannot enforce: only the ledger changes."""

from __future__ import annotations

from gpuhook.apply.live import hotplug_plan
from gpuhook.memory_limits import limit_changes, limit_state
from gpuhook.memory_limits.limit_state import unlimited
from gpuhook.memory_limits.warm import limit_records
from gpuhook.memory_limits.warm.limit_records import LimitRecord
from gpuhook.target.running_container import ContainerNote, Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.errors import GpuhookError
    from gpuhook.target.running_container import Target

UNHELD = ("GH1250", "GH1312")  # the driver is too old, and cgroup v1
_FORGOTTEN = "only the ledger changes, not the driver: {}"


def lifted(target: Target, gpus: Sequence[str], reason: GpuhookError, *, is_dry: bool) -> Report:
    """Lift the limits of a container on `gpus`, whose driver cannot be changed for `reason`."""
    records: dict[str, LimitRecord | None] = {}
    notes = []
    for before in limit_state.limits_of(target.entry, target.spec, gpus, None, []):
        granted, now = before.granted, before.record
        if before.gpu not in gpus or (granted is None and now is None):
            continue
        if granted is not None:
            notes.append(
                limit_changes.LIFTED.format(gpu=before.gpu, limit=limit_state.amounts(granted))
            )
        if now is None or now.is_limited:
            records[before.gpu] = LimitRecord(unlimited(before.gpu), granted) if granted else None
    plan = hotplug_plan.HotplugPlan()
    if records:
        plan.operations.append(
            ContainerNote(target, lambda entry: limit_records.enter(entry, records))
        )
        notes.append(_FORGOTTEN.format(reason.message))
    report = Report(target, plan, is_dry=is_dry)
    report.notes += notes
    if not is_dry:
        plan.execute(target.held)
    return report
