# SPDX-License-Identifier: Apache-2.0
"""What the ledger says of the memory limits of containers: how much, and whether the driver holds.

Nothing is removed: where the plugin runs, the runtimes' state may not be seen.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace

from gpuhook.containers.hot import ledger
from gpuhook.device_plugin.metrics import ledger_entries
from gpuhook.request.memory_request import NO_LIMIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from gpuhook.device_plugin.guard.process_scope import First
    from gpuhook.device_plugin.metrics.container_memory import Names

_BY_DRIVER = "driver"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A container of the ledger. `limits` are bytes by device UUID, None: the driver holds it.

    `lives` is None where that cannot be told from here. `is_ambiguous`: another container has the
    same id, so that nobody can tell whose a process is; it has no limits then. `first` is the
    process that it began with, None where that is not known.
    """

    id: str
    names: Names
    limits: Mapping[str, int | None] = field(default_factory=dict)
    lives: bool | None = True
    is_ambiguous: bool = False
    first: First | None = None

    @property
    def in_pod(self) -> bool:
        """Whether it is a container of a pod."""
        return bool(self.names[1])


def version() -> tuple[int, int]:
    """Return what changes with each entry that is written or removed, (0, 0) without a ledger."""
    try:
        found = os.stat(ledger.directory())
    except OSError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns


def read() -> tuple[Recorded, ...]:
    """Return the containers of the ledger that have not ended as far as can be told."""
    return unambiguous(_recorded(entry) for entry in ledger_entries.documents())


def unambiguous(entries: Iterable[Recorded]) -> tuple[Recorded, ...]:
    """Return the entries that may live, each id once; ids are unique per state root only."""
    living = [entry for entry in entries if entry.lives is not False]
    counts = Counter(entry.id for entry in living)
    by_id = {
        entry.id: entry
        if counts[entry.id] == 1
        else replace(entry, limits={}, is_ambiguous=True, first=None)
        for entry in living
    }
    return tuple(by_id.values())


def _recorded(entry: dict[str, Any]) -> Recorded:
    names = ledger_entries.names(entry)
    limits, lives = _limits(entry.get("memory")), _lives(entry)
    return Recorded(entry["id"], names, limits, lives, first=_first(entry))


def _first(entry: dict[str, Any]) -> First | None:
    """Return the first process of a container: of a hook's entry that is the one it names.

    The wrapper's own entry names the wrapper.
    """
    found = entry.get("init")
    if found is None and not entry["root"]:
        found = [entry.get("pid"), entry.get("started")]
    if not isinstance(found, list) or [type(one) for one in found] != [int, int]:
        return None
    pid, started = found
    return pid, started


def _limits(memory: object) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for record in memory if isinstance(memory, list) else ():
        if not isinstance(record, dict):
            continue
        device, hard = record.get("device"), record.get("hard")
        if not isinstance(device, str) or type(hard) is not int or hard <= 0:
            continue
        is_held = record.get("by") == _BY_DRIVER or hard >= NO_LIMIT
        found[device] = None if is_held else hard
    return found


def _lives(entry: dict[str, Any]) -> bool | None:
    if ledger.is_alive(entry):
        return True
    return False if entry["root"] and os.path.isdir(entry["root"]) else None
