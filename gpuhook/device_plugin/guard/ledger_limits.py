# SPDX-License-Identifier: Apache-2.0
"""Reads the memory limits of containers from the ledger, and whether the driver enforces them.

It removes no entry, since the plugin may not see the runtimes' state.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace

from gpuhook.containers.hot import ledger
from gpuhook.device_plugin.metrics import ledger_entries
from gpuhook.host.hot import state
from gpuhook.memory_limits import guard_state
from gpuhook.request.memory_request import NO_LIMIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from gpuhook.device_plugin.guard.container_processes import FirstProcess
    from gpuhook.device_plugin.metrics.container_memory import Names


@dataclass(frozen=True, slots=True)
class LedgerLimits:
    """A container of the ledger. `limits` are bytes by device UUID, None: enforced by the driver.

    `lives` is None if unknown. `is_ambiguous`: another container has the same id, so its processes
    cannot be distinguished, and it has no limits. `first` is its first process, None if unknown.
    """

    id: str
    names: Names
    limits: Mapping[str, int | None] = field(default_factory=dict)
    lives: bool | None = True
    is_ambiguous: bool = False
    first: FirstProcess | None = None

    @property
    def in_pod(self) -> bool:
        """Whether it is a container of a pod."""
        return bool(self.names[1])


def version() -> tuple[int, int]:
    """Return a value that changes with each written or removed entry, (0, 0) without a ledger."""
    try:
        status = os.stat(ledger.directory())
    except OSError:
        return 0, 0
    return status.st_ino, status.st_mtime_ns


def read() -> tuple[LedgerLimits, ...]:
    """Return the containers of the ledger that are not known to have exited."""
    return unambiguous(_entry_limits(entry) for entry in ledger_entries.documents())


def needs_guard() -> bool:
    """Return whether the ledger has a limit that no driver enforces, or stored marks exist.

    It needs few modules: on most nodes the rest of the guard is never loaded.
    """
    return os.path.exists(os.path.join(state.directory(), guard_state.FILE)) or any(
        hard is not None for entry in read() for hard in entry.limits.values()
    )


def unambiguous(entries: Iterable[LedgerLimits]) -> tuple[LedgerLimits, ...]:
    """Return the entries that may be alive, each id once: ids are unique only per state root."""
    living = [entry for entry in entries if entry.lives is not False]
    counts = Counter(entry.id for entry in living)
    by_id = {
        entry.id: entry
        if counts[entry.id] == 1
        else replace(entry, limits={}, is_ambiguous=True, first=None)
        for entry in living
    }
    return tuple(by_id.values())


def _entry_limits(document: dict[str, Any]) -> LedgerLimits:
    entry = ledger_entries.holder_entry(document)
    limits = {
        fact.device: None if fact.is_held or fact.hard >= NO_LIMIT else fact.hard
        for fact in entry.memory
        if fact.hard > 0
    }
    return LedgerLimits(entry.id, entry.names, limits, _lives(document), first=_first(document))


def _first(entry: dict[str, Any]) -> FirstProcess | None:
    """Return the first process of a container; a hook's entry has it as `pid`.

    The entry of the runtime wrapper has the wrapper's pid, and `init` for the first process.
    """
    first = entry.get("init")
    if first is None and not entry["root"]:
        first = [entry.get("pid"), entry.get("started")]
    if not isinstance(first, list) or [type(one) for one in first] != [int, int]:
        return None
    pid, started = first
    return pid, started


def _lives(entry: dict[str, Any]) -> bool | None:
    if ledger.is_alive(entry):
        return True
    return False if entry["root"] and os.path.isdir(entry["root"]) else None
