# SPDX-License-Identifier: Apache-2.0
"""What the device plugin's guard does about containers' memory, in people's terms and in JSON's."""

from __future__ import annotations

import time
from typing import Any

from gpuhook.memory_limits import guard_state
from gpuhook.request.memory_text import amount
from gpuhook.vendors.nvidia.gpu.sharing_isolation import BY_GUARD, BY_NOBODY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.memory_limits.guard_state import Over, Watched

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


def guarded_devices(
    container: str, watched: Mapping[tuple[str, str], Watched]
) -> dict[str, Watched]:
    """Return how the guard watches a container, by device; `watched` is what it watches."""
    return {device: one for (identity, device), one in watched.items() if identity == container}


def read() -> dict[tuple[str, str], Watched]:
    """Return what the guard of this node watches now, by container and device."""
    return guard_state.watched()


def by(watched: Watched | None) -> str:
    """Return who bounds memory that no driver does: a guard that only tells bounds nothing."""
    return BY_GUARD if watched is not None and watched.is_bounded else BY_NOBODY


def document(watched: Watched | None) -> dict[str, Any] | None:
    """Return it as JSON has it: bytes, and seconds since 1970."""
    if watched is None:
        return None
    return {"limit": watched.limit, "action": watched.action, "over": _over(watched.over)}


def over(told: Mapping[str, Any] | None) -> str:
    """Return how much a container above its limit uses, of what document() returns; "" else."""
    return f"over: {amount(told['over']['used'])}" if told and told["over"] else ""


def sentence(told: Mapping[str, Any] | None) -> str:
    """Return what is to be said of a container above its limit, "" of others."""
    if not told or not told["over"]:
        return ""
    above = told["over"]
    words = f"uses {amount(above['used'])}, above its limit of {amount(told['limit'])}"
    words += f" since {ago(time.time() - above['since'])}"
    done = [
        f"{one['signal']} for process {one['pid']}"
        if one["signal"]
        else f"process {one['pid']} could not be ended"
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


def _over(found: Over | None) -> dict[str, Any] | None:
    if found is None:
        return None
    done = [{"signal": one.signal or None, "pid": one.pid, "at": one.at} for one in found.done]
    return {"used": found.used, "since": found.since, "done": done}
