# SPDX-License-Identifier: Apache-2.0
"""guard.json below the state directory: what the guard monitors, overruns, and its actions.

Only the plugin writes it, and removes it when there is nothing to report. It reads the marks in it
when it restarts (guard_marks.py); the command line shows the rest, and loads nothing else of the
guard. The file of a plugin that has exited is ignored.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gpuhook.errors import GpuhookError
from gpuhook.host import documents
from gpuhook.host.hot import files, procfs, state
from gpuhook.request.memory_request import amount
from gpuhook.vendors.usage.device_isolation import BY_GUARD, BY_NOBODY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Key = tuple[str, str]  # the id of a container, the UUID of a device

FORMAT = 2
FILE = "guard.json"  # below the state directory
_ENDING = ("terminate", "kill")
_REPORT = "report"
_MAX_SIZE = 4 << 20
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


@dataclass(frozen=True, slots=True)
class Watched:
    """How the guard monitors a container's memory of one device, of which `limit` bytes are its.

    `action` is what the guard does about an overrun; it only reports if it is not certain whose the
    share is. `over` is the overrun as JSON has it: the bytes `used`, `since` when (seconds since
    1970), and the signals `done`; None if the container is not above its limit.
    """

    limit: int
    action: str
    over: dict[str, Any] | None = None

    @property
    def is_bounded(self) -> bool:
        """Return whether processes are ended: only then the guard enforces the limit."""
        return self.action in _ENDING


def path() -> str:
    """Return the path of the file."""
    return os.path.join(state.directory(), FILE)


def read() -> dict[str, Any]:
    """Return the document, {} without a file that can be trusted."""
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
    files.replace(path(), text.encode(), mode=0o600)  # it names pods


def watched() -> dict[Key, Watched]:
    """Return what the guard monitors now, {} without a running plugin that watches."""
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


def _over(found: Mapping[str, Any]) -> tuple[Key | None, dict[str, Any] | None]:
    """Return the key of a mark, and the overrun if the container is still above its limit."""
    try:
        if found["below"] is not None:
            return _key(found), None
        done = [
            {"signal": str(one["signal"]) or None, "pid": int(one["pid"]), "at": float(one["at"])}
            for one in found["sent"]
        ]
        over = {"used": int(found["used"]), "since": float(found["since"]), "done": done}
    except (KeyError, TypeError, ValueError, OverflowError):
        return None, None
    return _key(found), over


def guarded_devices(
    container: str, watched: Mapping[tuple[str, str], Watched]
) -> dict[str, Watched]:
    """Return how the guard monitors a container, by device; `watched` is the guard's state."""
    return {device: one for (identity, device), one in watched.items() if identity == container}


def by(watched: Watched | None) -> str:
    """Return what limits memory that no driver limits: a guard that only reports does not."""
    return BY_GUARD if watched is not None and watched.is_bounded else BY_NOBODY


def document(watched: Watched | None) -> dict[str, Any] | None:
    """Return it as JSON has it: bytes, and seconds since 1970."""
    if watched is None:
        return None
    return {"limit": watched.limit, "action": watched.action, "over": watched.over}


def over(found: Mapping[str, Any] | None) -> str:
    """Return the memory of a container above its limit, from document(); "" for others."""
    return f"over: {amount(found['over']['used'])}" if found and found["over"] else ""


def sentence(found: Mapping[str, Any] | None) -> str:
    """Return a sentence about a container above its limit, "" for others."""
    if not found or not found["over"]:
        return ""
    above = found["over"]
    words = f"uses {amount(above['used'])}, above its limit of {amount(found['limit'])}"
    words += f" since {ago(time.time() - above['since'])}"
    done = [
        f"{one['signal']} for process {one['pid']}"
        if one["signal"]
        else f"process {one['pid']} could not be killed"
        for one in above["done"]
    ]
    return words + f"; the guard: {', '.join(done) or 'nothing done yet'}"


def ago(seconds: float) -> str:
    """Return how long ago something was.

    >>> ago(7300)
    '2h ago'
    """
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return f"{max(0, int(seconds))}s ago"
