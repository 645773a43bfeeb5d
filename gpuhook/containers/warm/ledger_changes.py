# SPDX-License-Identifier: Apache-2.0
"""The ledger's entry of a running container: lookup, and changes by one process at a time."""

from __future__ import annotations

import os
from binascii import crc32

from gpuhook.containers.hot import ledger, ledger_warnings
from gpuhook.containers.warm import state_roots
from gpuhook.errors import fault
from gpuhook.host.hot import state
from gpuhook.host.hot.file_lock import FileLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from gpuhook.errors import GpuhookError

_ENTRIES = "entries"
_CHANGING = "changing"
_LOCKS = 256
_TIMEOUT = 30.0  # seconds


def find_entry(root: str, identity: str, pid: int = 0) -> dict[str, Any] | None:
    """Return the entry of a container that exists, None if it has none.

    The hook of a CDI spec knows no state root: its entry applies if it names process `pid`, the
    container's first.
    """
    entry = _entry(root, identity) or _of_another_name(root, identity)
    if entry is None and root and pid:
        entry = _entry("", identity)
        if entry is None or entry.get("pid") != pid:
            return None
    return entry if entry is not None and ledger.is_alive(entry) is not False else None


def _entry(root: str, identity: str) -> dict[str, Any] | None:
    """Return a container's own entry: another container's file name may have the same checksums."""
    entry = ledger.entry_at(ledger.path_of(root, identity))
    if entry is None or (entry["id"], entry["root"]) != (identity, root):
        return None
    return entry


def _of_another_name(root: str, identity: str) -> dict[str, Any] | None:
    """Return the entry whose state root is the directory `root` under another name.

    The wrapper records the root as the engine names it: resolving links would cost every create.
    """
    real = state_roots.real(root)
    for entry in ledger.living() if real else ():
        if entry["id"] == identity and entry["root"] and state_roots.real(entry["root"]) == real:
            return entry
    return None


def update(
    root: str,
    identity: str,
    init: tuple[int, int],
    change: Callable[[dict[str, Any]], dict[str, Any] | None],
) -> None:
    """Replace the entry of a running container by the result of `change`; None removes it.

    `init` is the pid and start time of its first process. A container without an entry gets one.
    Concurrent updates wait for each other; raises OSError if the directory cannot be written.
    """
    with FileLock(_path(_ENTRIES)):
        entry = find_entry(root, identity, init[0])
        if entry is None:
            entry = {"id": identity, "root": root, "pid": init[0], "started": init[1]}
        place = entry["root"]
        changed = change({**entry, "init": list(init)})
        if changed is None:
            ledger.remove(ledger.path_of(place, identity))
        else:
            ledger.record(place, identity, changed)


def add_warnings(
    identity: str,
    bundle: str,
    errors: Iterable[GpuhookError],
    made: dict[str, Any] | None = None,
) -> None:
    """Add warnings to the entry of a container that starts.

    `bundle` is "/" if the runtime does not name it. A container without an entry gets `made`, if it
    is not None. Raises OSError if the directory cannot be written.
    """
    with FileLock(_path(_ENTRIES)):
        for entry in ledger.living(is_swept=True):
            if entry["id"] == identity and bundle in (entry.get("bundle"), "/"):
                records = ledger_warnings.records(errors, ledger_warnings.read(entry))
                ledger.record(entry["root"], identity, {**entry, "warnings": records})
                return
        if made is not None:
            ledger.record("", identity, {**made, "warnings": ledger_warnings.records(errors)})


def _path(name: str) -> str:
    # Not among the entries: the wrapper counts those at every create.
    return os.path.join(state.directory(), "locks", name)


class Changing(FileLock):
    """A context manager: no other process changes this running container meanwhile.

    Raises GH1757 if another process does so for half a minute. The lock is a file that only root
    can open: a process that can open a file can lock it.
    """

    def __init__(self, identity: str) -> None:
        # A few files for all containers: none has to be removed, and few containers share one.
        path = _path(f"{_CHANGING}-{crc32(os.fsencode(identity)) % _LOCKS:02x}")
        super().__init__(path, _TIMEOUT, lambda: fault("GH1757", path=path))
