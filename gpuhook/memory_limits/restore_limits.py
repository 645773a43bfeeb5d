# SPDX-License-Identifier: Apache-2.0
"""Memory limits of a container that the driver lost: a repair restores them.

A driver that was loaded again has none of them, and root may have cleared one.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

from gpuhook.apply.live import hotplug_plan
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import settings
from gpuhook.memory_limits.limit_plan import LimitPlan, clipped
from gpuhook.memory_limits.limit_worker import LimitDrivers
from gpuhook.memory_limits.warm import limit_records, memory_backend
from gpuhook.memory_limits.warm.limit_records import LimitRecord
from gpuhook.vendors.hot.memory_vendors import by_vendor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpuhook.apply.live.hotplug_plan import HotplugPlan
    from gpuhook.target.running_container import Report, Target


class LostLimits:
    """The limits that the driver lost (`plan`), and those that it refused before (`refused`).

    `notes` are reasons why some could not be read.
    """

    def __init__(self) -> None:
        self.plan: HotplugPlan = hotplug_plan.HotplugPlan()
        self.refused: HotplugPlan = hotplug_plan.HotplugPlan()
        self.notes: list[str] = []

    def try_again(self, target: Target, report: Report, *, is_dry: bool) -> None:
        """Try the refused limits again, and add the result to the report.

        Another refusal is a note and not a fault: nothing changed.
        """
        if not self.refused.operations:
            return
        try:
            if not is_dry:
                self.refused.execute(target.held)
            report.steps += self.refused.describe()
        except GpuhookError as error:
            report.notes.append(
                f"{error.message} ({error.code}): the driver still enforces no limit"
            )


@contextmanager
def lost_limits(target: Target, library: Callable[[], str], guarantee: str) -> Iterator[LostLimits]:
    """Yield the lost limits of a container, while their drivers are open.

    `library` finds the driver's library; it is not called for a container without limits.
    `guarantee` is the setting limits.guarantee.
    """
    found = LostLimits()
    records = limit_records.records_of(target.entry)
    with ExitStack() as stack:
        for limits in by_vendor(record.limit for record in records.values()).values():
            own = {limit.device: records[limit.device] for limit in limits}
            try:
                drivers = stack.enter_context(LimitDrivers(library))
                lost, notes = again(target, drivers, own)
                refused, _ = again(target, drivers, own, is_refused=True, guarantee=guarantee)
            except (GpuhookError, OSError) as error:
                message = error.message if isinstance(error, GpuhookError) else str(error)
                if not all(message in one.trouble for one in own.values() if one.is_limited):
                    found.notes.append(f"its memory limits were not checked: {message}")
                continue
            found.plan.operations += lost.operations
            found.refused.operations += refused.operations
            found.notes += notes
        yield found


def again(
    target: Target,
    drivers: LimitDrivers,
    gpus: Iterable[str],
    *,
    is_refused: bool = False,
    guarantee: str = settings.ALWAYS,
) -> tuple[HotplugPlan, list[str]]:
    """Return the plan that sets the ledger's limits of `gpus` again, and why some are skipped.

    `is_refused` selects the limits that a driver refused; today's may be another one. `guarantee`
    is the setting limits.guarantee. Raises GH1312, GH1313.
    """
    plan, notes = LimitPlan(target, drivers), []
    for before in plan.before(gpus):
        record = before.record
        if record is None or record.is_enforced == is_refused:
            continue
        if before.trouble:
            notes.append(f"memory limit of {before.gpu}: {before.trouble}")
            continue
        wanted, granted = record.limit, record.granted
        if is_refused:  # it may have been recorded while the card's memory was unknown
            wanted = clipped(drivers, wanted)
            granted = clipped(drivers, granted) if granted else None
        limit, reason = memory_backend.supported_limit(wanted, guarantee, plan.backend(before.gpu))
        # Without a grant and a limit, the driver's limit was unknown.
        is_kept = record.granted is not None or record.is_limited
        kept = LimitRecord(limit, granted, reason or record.guarantee) if is_kept else None
        plan.change(before, limit, kept)
    return plan.plan(), notes
