# SPDX-License-Identifier: Apache-2.0
"""The memory limit of a container on one GPU: grant, record, driver; and the step that sets it."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.errors import GpuhookError, fault
from gpuhook.memory_limits.warm import limit_records
from gpuhook.request import memory_request
from gpuhook.request.memory_request import NO_LIMIT, MemoryLimit, amount
from gpuhook.vendors.hot.memory_vendors import vendor_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from gpuhook.containers.warm.driver_limit import DriverLimit
    from gpuhook.memory_limits.guard_state import Watched
    from gpuhook.memory_limits.warm.limit_records import LimitRecord
    from gpuhook.vendors.interfaces.memory_interface import LimitDriver

    Opened = Callable[[str], LimitDriver | None]  # by device


@dataclass(frozen=True, slots=True)
class LimitState:
    """A container's limit on the GPU `gpu`, a device id.

    `record` is the ledger's, None without one. `held` has the driver's limit for each cgroup of the
    container, None for a cgroup that it does not know; it is empty if the driver was not asked or
    could not answer, and `trouble` is the reason then. `watched` is the state of the device
    plugin's guard, None if it does not watch the container.
    """

    gpu: str
    granted: MemoryLimit | None = None
    record: LimitRecord | None = None
    held: dict[str, DriverLimit | None] = field(default_factory=dict)
    trouble: str = ""
    watched: Watched | None = None

    @property
    def hard(self) -> int:
        """Return the hard limit in the driver, in bytes: the smallest of its cgroups'."""
        return min((one.hard for one in self.held.values() if one), default=NO_LIMIT)

    @property
    def soft(self) -> int:
        """Return the soft limit in the driver, in bytes."""
        return max((one.soft for one in self.held.values() if one), default=0)

    @property
    def used(self) -> int | None:
        """Return the container's memory now, in bytes; None if the driver does not report it."""
        return max((one.used for one in self.held.values() if one), default=None)

    def holds(self, limit: MemoryLimit | None) -> bool:
        """Return whether the driver has exactly this limit, None for no limit, in every cgroup."""
        return all(is_held(one, limit) for one in self.held.values())

    @property
    def agrees(self) -> bool | None:
        """Return whether the driver has the ledger's limit; None if one of them is unknown.

        A limit that another program has set is not the ledger's business.
        """
        if self.record is None or not self.held:
            return None
        return self.holds(self.record.limit)


def limits_of(
    entry: dict[str, Any],
    spec: dict[str, Any] | None,
    gpus: Iterable[str],
    driver: Opened,
    cgroups: list[str] | None = None,
) -> list[LimitState]:
    """Return the limits of a container on `gpus` and on those with records in its entry.

    `spec` is its config.json, None if it was not read. `cgroups` are its cgroups; without them,
    those of the record are used. `driver` returns the driver of a device, None if it is not asked.
    """
    records = limit_records.records_of(entry)
    found = []
    for gpu in dict.fromkeys([*gpus, *records]):
        record = records.get(gpu)
        granted = record.granted if record else _by_config(spec, gpu)
        held, trouble = _driver_limits(driver(gpu), gpu, _directories(record, cgroups))
        found.append(LimitState(gpu, granted, record, held, trouble))
    return found


def is_held(held: DriverLimit | None, limit: MemoryLimit | None) -> bool:
    """Return whether the driver's limit of a cgroup is `limit`, None for no limit."""
    hard, soft = (limit.hard, limit.soft) if limit else (NO_LIMIT, 0)
    if held is None:
        return (hard, soft) == (NO_LIMIT, 0)
    return held.holds(hard, soft)


def finding(container: str, limit: LimitState) -> GpuhookError | None:
    """Return what is wrong with a limit of a container: GH1785, GH1786, or None."""
    record = limit.record
    if record is None or limit.agrees:
        return None
    noted = amounts(record.limit)
    if limit.agrees is None:
        if record.by or not record.is_limited:
            return None
        return fault(
            "GH1786", container=container, gpu=limit.gpu, limit=noted, reason=record.trouble
        )
    held = amounts(MemoryLimit(limit.gpu, limit.hard, limit.soft))
    return fault("GH1785", container=container, gpu=limit.gpu, noted=noted, held=held)


def amounts(limit: MemoryLimit | None) -> str:
    """Return a limit in words: "4Gi (2Gi of it guaranteed)", "no limit"."""
    if limit is None or not limit_records.is_limited(limit):
        return "no limit"
    if limit.hard == NO_LIMIT:
        return f"no limit ({amount(limit.soft)} guaranteed)"
    return amount(limit.hard) + (f" ({amount(limit.soft)} of it guaranteed)" if limit.soft else "")


def _directories(record: LimitRecord | None, cgroups: list[str] | None) -> list[str]:
    if cgroups is not None:
        return cgroups
    return record.cgroups if record else []


def _driver_limits(
    driver: LimitDriver | None, gpu: str, cgroups: list[str]
) -> tuple[dict[str, DriverLimit | None], str]:
    if driver is None:
        return {}, ""
    try:
        return {path: driver.get(gpu, path) for path in cgroups}, ""
    except GpuhookError as error:
        return {}, error.message


def _by_config(spec: dict[str, Any] | None, gpu: str) -> MemoryLimit | None:
    """Return the grant of config.json: a vendor's own runtime takes the variables, too."""
    if spec is None:
        return None
    words = vendor_of(gpu).vocabulary
    try:
        found = memory_request.limits(spec, [gpu], words)
    except GpuhookError:  # invalid variables grant nothing
        return memory_request.granted(spec, words.memory_prefix).get(gpu)
    return found[0] if found else None


def unlimited(gpu: str) -> MemoryLimit:
    """Return the limit that limits nothing: of a grant that was lifted."""
    return MemoryLimit(gpu, NO_LIMIT)
