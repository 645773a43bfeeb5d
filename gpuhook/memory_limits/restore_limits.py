# SPDX-License-Identifier: Apache-2.0
"""The memory limits of a container that the driver holds no more: how a repair puts them back.

A driver that was loaded anew knows none of them, and whoever is root may have cleared one.
"""

from __future__ import annotations

from contextlib import contextmanager

from gpuhook.apply.live import hotplug_plan
from gpuhook.errors import GpuhookError
from gpuhook.memory_limits import limit_changes
from gpuhook.memory_limits.nvml_worker import PatientDriver
from gpuhook.memory_limits.warm import limit_records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuhook.apply.live.hotplug_plan import HotplugPlan
    from gpuhook.target.running_container import Report, Target


class Lost:
    """What the driver holds no more (`plan`), and what it never took (`untaken`).

    `notes` say why something could not be looked at.
    """

    def __init__(self) -> None:
        self.plan: HotplugPlan = hotplug_plan.HotplugPlan()
        self.untaken: HotplugPlan = hotplug_plan.HotplugPlan()
        self.notes: list[str] = []

    def try_again(self, target: Target, report: Report, *, is_dry: bool) -> None:
        """Try what the driver did not take at the time, and tell in the report what is done.

        A refusal is told too, and is no fault: it is as it was.
        """
        if not self.untaken.operations:
            return
        try:
            if not is_dry:
                self.untaken.execute(target.held)
            report.steps += self.untaken.describe()
        except GpuhookError as error:
            report.notes.append(f"{error.message} ({error.code}): the driver holds no limit, still")


@contextmanager
def lost(target: Target, library: Callable[[], str], guarantee: str) -> Iterator[Lost]:
    """Give what the driver has lost of a container's limits, while the driver is open for it.

    `library` finds NVML; it is not called for a container without limits. `guarantee` is the
    setting limits.guarantee.
    """
    found = Lost()
    records = limit_records.records_of(target.entry).values()
    if not records:
        yield found
        return
    try:
        driver = PatientDriver(library())
    except (GpuhookError, OSError) as error:
        _note(found, target, error)
        yield found
        return
    with driver:
        try:
            found.plan, found.notes = limit_changes.lost(target, driver)
            found.untaken = limit_changes.never_held(target, driver, guarantee)
        except GpuhookError as error:
            _note(found, target, error)
        yield found


def _note(found: Lost, target: Target, error: GpuhookError | OSError) -> None:
    """Note why it could not be looked at, unless that is what the ledger knows already."""
    message = error.message if isinstance(error, GpuhookError) else str(error)
    records = limit_records.records_of(target.entry).values()
    if not all(message in record.trouble for record in records if record.is_limited):
        found.notes.append(f"its memory limits were not looked at: {message}")
