# SPDX-License-Identifier: Apache-2.0
"""guard.json below the state directory: whom the guard watches, who is above, what was done.

The plugin alone writes it, and removes it when there is nothing to tell. It reads the marks in it
when it is started anew (guard_marks.py); the command line shows the rest, and pays for nothing of
the guard but this file. What a plugin wrote that has ended counts for nobody.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass

from gpuhook.errors import GpuhookError
from gpuhook.host import documents
from gpuhook.host.hot import files, procfs, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Key = tuple[str, str]  # the id of a container, the UUID of a device

FORMAT = 2
FILE = "guard.json"  # below the state directory
_ENDING = ("terminate", "kill")
_REPORT = "report"
_MAX_SIZE = 4 << 20


@dataclass(frozen=True, slots=True)
class Done:
    """A signal that a process got, at a time in seconds since 1970; "": none could be sent."""

    signal: str
    pid: int
    at: float


@dataclass(frozen=True, slots=True)
class Over:
    """That a container uses more than its limit: bytes, since when (1970), and what was done."""

    used: int
    since: float
    done: tuple[Done, ...] = ()


@dataclass(frozen=True, slots=True)
class Watched:
    """How the guard watches a container's memory of one device, of which `limit` bytes are its.

    `action` is what it does about who is above. It tells, and no more, where it cannot be sure
    whose the share is. `over` None: the container is not above its limit.
    """

    limit: int
    action: str
    over: Over | None = None

    @property
    def is_bounded(self) -> bool:
        """Return whether processes are ended: only then the guard bounds anything."""
        return self.action in _ENDING


def path() -> str:
    """Return the path of the file."""
    return os.path.join(state.directory(), FILE)


def read() -> dict[str, Any]:
    """Return the document, {} where there is no file to be believed."""
    try:
        if not state.usable(os.lstat(path())):
            return {}
        found = documents.parse_json_object(files.read(path(), _MAX_SIZE))
    except (OSError, ValueError, GpuhookError):
        return {}
    return found if found.get("format") == FORMAT else {}


def write(document: Mapping[str, Any] | None) -> None:
    """Write the document, None removes the file. Raises OSError."""
    if document is None:
        with suppress(FileNotFoundError):
            os.unlink(path())
        return
    os.makedirs(state.directory(), 0o755, exist_ok=True)
    text = json.dumps({"format": FORMAT, **document}, indent=2) + "\n"
    files.replace(path(), text.encode(), mode=0o644)


def watched() -> dict[Key, Watched]:
    """Return what the guard watches now, {} where no plugin is at work that watches."""
    found = read()
    if not _is_at_work(found):
        return {}
    over = {key: one for key, one in map(_over, _listed(found, "over")) if key is not None}
    action = str(found.get("action"))
    kept: dict[Key, Watched] = {}
    for one in _listed(found, "watched"):
        key, limit = _key(one), one.get("limit")
        if key is None or not isinstance(limit, int):
            continue
        does = action if one.get("certain") is True else _REPORT
        kept[key] = Watched(limit, does, over.get(key))
    return kept


def _is_at_work(found: Mapping[str, Any]) -> bool:
    pid, started = found.get("pid"), found.get("started")
    return isinstance(pid, int) and started is not None and procfs.start_time(pid) == started


def _listed(found: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    listed = found.get(name)
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _key(found: Mapping[str, Any]) -> Key | None:
    identity, device = found.get("id"), found.get("device")
    return (identity, device) if isinstance(identity, str) and isinstance(device, str) else None


def _over(found: Mapping[str, Any]) -> tuple[Key | None, Over | None]:
    """Return whose mark this is, and that it is above its limit: not that of one that came down."""
    key = _key(found)
    try:
        if found["below"] is not None:
            return key, None
        sent = (_done(one) for one in found["sent"])
        return key, Over(int(found["used"]), float(found["since"]), tuple(sent))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None, None


def _done(found: Mapping[str, Any]) -> Done:
    return Done(str(found["signal"]), int(found["pid"]), float(found["at"]))
