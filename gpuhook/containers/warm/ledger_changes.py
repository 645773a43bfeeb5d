# SPDX-License-Identifier: Apache-2.0
"""The ledger's entry of a running container: looked up, and changed, one at a time."""

from __future__ import annotations

import fcntl
import os
import time
from binascii import crc32

from gpuhook.containers.hot import ledger, ledger_warnings
from gpuhook.containers.warm import state_roots
from gpuhook.errors import fault
from gpuhook.host.hot import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from gpuhook.errors import GpuhookError

_ENTRIES = "entries"
_CHANGING = "changing"
_LOCKS = 256
_PATIENCE = 30.0  # seconds


def find_entry(root: str, identity: str, pid: int = 0) -> dict[str, Any] | None:
    """Return the entry of a container that exists, None if it has none.

    The hook of a CDI spec knows no state root: its entry counts where it names process `pid`, the
    container's first.
    """
    entry = _entry(root, identity) or _of_another_name(root, identity)
    if entry is None and root and pid:
        entry = _entry("", identity)
        if entry is None or entry.get("pid") != pid:
            return None
    return entry if entry is not None and ledger.is_alive(entry) is not False else None


def _entry(root: str, identity: str) -> dict[str, Any] | None:
    """Return a container's own entry: another one's may have the same checksums in its name."""
    entry = ledger.entry_at(ledger.path_of(root, identity))
    if entry is None or (entry["id"], entry["root"]) != (identity, root):
        return None
    return entry


def _of_another_name(root: str, identity: str) -> dict[str, Any] | None:
    """Return the entry whose state root is the directory `root` under another name.

    The wrapper enters what it is given: resolving links would cost every create.
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
    """Replace the entry of a running container by what `change` makes of it; None removes it.

    `init` is the pid and start time of its first process. A container without an entry gets one.
    Those who update wait for each other; raises OSError where the directory cannot be written.
    """
    lock = _opened(_ENTRIES)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        entry = find_entry(root, identity, init[0])
        if entry is None:
            entry = {"id": identity, "root": root, "pid": init[0], "started": init[1]}
        place = entry["root"]
        changed = change({**entry, "init": list(init)})
        if changed is None:
            ledger.remove(ledger.path_of(place, identity))
        else:
            ledger.record(place, identity, changed)
    finally:
        os.close(lock)


def add_warnings(
    identity: str,
    bundle: str,
    errors: Iterable[GpuhookError],
    made: dict[str, Any] | None = None,
) -> None:
    """Add warnings to the entry of a container that starts.

    `bundle` is "/" if the runtime does not name it. A container without an entry gets `made`, if
    that is given. Raises OSError if the directory cannot be written.
    """
    lock = _opened(_ENTRIES)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for entry in ledger.living(is_swept=True):
            if entry["id"] == identity and bundle in (entry.get("bundle"), "/"):
                records = ledger_warnings.records(errors, ledger_warnings.read(entry))
                ledger.record(entry["root"], identity, {**entry, "warnings": records})
                return
        if made is not None:
            ledger.record("", identity, {**made, "warnings": ledger_warnings.records(errors)})
    finally:
        os.close(lock)


def _path(name: str) -> str:
    # Not among the entries: the wrapper counts those at every create.
    return os.path.join(state.directory(), "locks", name)


def _opened(name: str) -> int:
    """Return a descriptor of a lock file, root's own."""
    path = _path(name)
    os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)


class Changing:
    """Within it, nobody else changes this running container.

    GH1757 where somebody does so for half a minute. The lock is a file of root's own: one that
    others can open, they can hold.
    """

    def __init__(self, identity: str) -> None:
        # A few files for all containers: none has to be removed, and few wait for another's.
        self._name = f"{_CHANGING}-{crc32(os.fsencode(identity)) % _LOCKS:02x}"
        self._fd = -1

    def __enter__(self) -> None:
        self._fd = _opened(self._name)
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    os.close(self._fd)
                    raise fault("GH1757", path=_path(self._name)) from None
                time.sleep(0.02)
            else:
                return

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)
