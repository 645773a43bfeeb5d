# SPDX-License-Identifier: Apache-2.0
"""The memory limits of a container for commands, with what is wrong with them."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gpuhook.containers.hot import ledger
from gpuhook.errors import GpuhookError
from gpuhook.memory_limits import (
    driver_support,
    guard_state,
    limit_plan,
    limit_state,
    visible_gpus,
)
from gpuhook.memory_limits.nvml_worker import PatientDriver
from gpuhook.memory_limits.warm import limit_records
from gpuhook.request.memory_request import NO_LIMIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpuhook.memory_limits.driver_support import Support
    from gpuhook.memory_limits.guard_state import Watched
    from gpuhook.memory_limits.limit_state import LimitState
    from gpuhook.request.memory_request import MemoryLimit
    from gpuhook.target.running_container import Target


@dataclass(frozen=True, slots=True)
class View:
    """A container, by its ledger entry, and its limits."""

    container: str
    pod: dict[str, Any]
    limits: tuple[LimitState, ...]

    def findings(self) -> list[GpuhookError]:
        """Return what is wrong: GH1785, GH1786."""
        found = (limit_state.finding(self.container, limit) for limit in self.limits)
        return [error for error in found if error is not None]

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "container": self.container,
            "pod": self.pod.get("pod"),
            "namespace": self.pod.get("namespace"),
            "name": self.pod.get("container"),
            "gpus": [document(limit) for limit in self.limits],
        }


class LimitQuestion:
    """The driver, opened on first use, until `stack` is closed.

    If it cannot be opened, `library` is "" and `trouble` is set.
    """

    def __init__(self, stack: ExitStack, find: Callable[[], str]) -> None:
        self._stack = stack
        self._find = find
        self._is_open = False
        self._driver: PatientDriver | None = None
        self.library = ""
        self.trouble: GpuhookError | None = None

    @property
    def driver(self) -> PatientDriver | None:
        """Return the driver, None if it has no limits or does not answer."""
        if not self._is_open:
            self._is_open = True
            try:
                self.library = self._find()
                self._driver = self._stack.enter_context(PatientDriver(self.library))
            except GpuhookError as error:
                self.trouble = error
        return self._driver

    @cached_property
    def node(self) -> Support:
        """Return whether this node can enforce limits, with or without containers."""
        if self.library:
            return driver_support.driver_support(self.library)
        try:
            return driver_support.driver_support(self._find())
        except GpuhookError as error:
            return driver_support.Support(reason=error.message, remedy=error.hint)

    @cached_property
    def watched(self) -> dict[tuple[str, str], Watched]:
        """Return what the device plugin's guard watches, by container and device."""
        return guard_state.watched()


@contextmanager
def asking(find: Callable[[], str]) -> Iterator[LimitQuestion]:
    """Yield the driver whose library `find` finds, opened on first use."""
    with ExitStack() as stack:
        yield LimitQuestion(stack, find)


def of_entry(entry: dict[str, Any], asked: LimitQuestion) -> View:
    """Return the limits in a ledger entry."""
    found = limit_state.limits_of(
        entry, None, guard_state.guarded_devices(entry["id"], asked.watched), asked.driver
    )
    return View(entry["id"], entry, _with_guard(entry["id"], found, asked))


def of_target(target: Target, asked: LimitQuestion) -> View:
    """Return the limits of a running container on all of its GPUs, as far as they are known."""
    driver, gpus = asked.driver, []
    if asked.library:
        noted = limit_records.records_of(target.entry)
        try:
            gpus = visible_gpus.visible_gpus(target, asked.library, noted)
        except GpuhookError as error:
            asked.trouble = asked.trouble or error
    names = [str(gpu.uuid) for gpu in gpus if gpu.mig_mode != "enabled"]
    found = limit_state.limits_of(
        target.entry, target.spec, names, driver, _directories(target, asked)
    )
    pod = ledger.pod_of(target.spec.get("annotations")) or target.entry
    return View(target.found.id, pod, _with_guard(target.found.id, found, asked))


def _with_guard(
    container: str, found: Iterable[LimitState], asked: LimitQuestion
) -> tuple[LimitState, ...]:
    watched = guard_state.guarded_devices(container, asked.watched)
    return tuple(replace(limit, watched=watched.get(limit.gpu)) for limit in found)


def document(limit: LimitState) -> dict[str, Any]:
    """Return a limit as JSON has it: bytes, and null for no limit and for unknown values."""
    record = limit.record
    return {
        "gpu": limit.gpu,
        "granted": _values(limit.granted),
        "ledger": _values(record.limit if record else None),
        "driver": _document(limit.hard, limit.soft) if limit.held else None,
        "used": used(limit),
        "by": by(limit),
        "guard": guard_state.document(limit.watched),
        "agrees": limit.agrees,
        "trouble": limit.trouble or (record.trouble if record else ""),
        "guarantee": record.guarantee if record else "",
        "cgroups": list(limit.held) or (record.cgroups if record else []),
    }


def by(limit: LimitState) -> str:
    """Return what enforces the limit: the driver, by its own report or by the ledger's.

    Otherwise the device plugin's guard, if it ends processes above their limit.
    """
    record = limit.record
    is_held = record is not None and record.is_limited and record.by == limit_records.DRIVER
    if limit.held:
        # A limit of all that the card has is a limit only if it was set.
        is_limited = any(one.is_limited for one in limit.held.values() if one)
        is_held = is_limited or (is_held and limit.agrees is True)
    return limit_records.DRIVER if is_held else guard_state.by(limit.watched)


def used(limit: LimitState) -> int | None:
    """Return the container's memory, by the driver; else by the guard, if it is above a limit."""
    over = limit.watched.over if limit.watched else None
    return over["used"] if limit.used is None and over else limit.used


def _directories(target: Target, asked: LimitQuestion) -> list[str]:
    try:
        return limit_plan.directories(target)
    except GpuhookError as error:
        asked.trouble = asked.trouble or error
        return []


def _values(limit: MemoryLimit | None) -> dict[str, int | None] | None:
    return None if limit is None else _document(limit.hard, limit.soft)


def _document(hard: int, soft: int) -> dict[str, int | None]:
    return {"limit": None if hard == NO_LIMIT else hard, "request": soft}
