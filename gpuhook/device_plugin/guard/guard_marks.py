# SPDX-License-Identifier: Apache-2.0
"""The marks and the shares that are watched, as guard_state.py keeps them for later and others."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass

from gpuhook.device_plugin.config.gpuhook_section import NO_ACTION
from gpuhook.device_plugin.guard.guard_policy import END, FAILED, TERM, GuardMark, Sent
from gpuhook.device_plugin.guard.guard_shares import GuardShare
from gpuhook.host.hot import procfs
from gpuhook.memory_limits import guard_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


@dataclass(frozen=True, slots=True)
class GuardWatching:
    """What the guard does about who is above, and the shares that its last look has seen."""

    action: str = NO_ACTION
    shares: tuple[GuardShare, ...] = ()


def read() -> tuple[GuardMark, ...]:
    """Return the marks that the plugin wrote last, () where there is no file to be believed."""
    over = guard_state.read().get("over")
    made = [from_document(one) for one in (over if isinstance(over, list) else [])]
    return tuple(mark for mark in made if mark is not None)


def write(marks: Iterable[GuardMark], watching: GuardWatching | None = None) -> None:
    """Write the marks, and whom this process watches; remove the file for none. Raises OSError."""
    over = [document(mark) for mark in marks]
    seen = watching or GuardWatching()
    if not (over or seen.shares):
        guard_state.write(None)
        return
    pid = os.getpid()
    watcher = {"pid": pid, "started": procfs.start_time(pid), "action": seen.action}
    guard_state.write({**watcher, "watched": [_watched(one) for one in seen.shares], "over": over})


def _watched(share: GuardShare) -> dict[str, Any]:
    certain = share.is_certain
    return {
        "id": share.container,
        "device": share.device,
        "limit": share.hard,
        "certain": certain,
    }


def document(mark: GuardMark) -> dict[str, Any]:
    """Return a mark as it is in the file."""
    namespace, pod, container = mark.share.names
    return {
        "id": mark.share.container,
        "namespace": namespace,
        "pod": pod,
        "container": container,
        "device": mark.share.device,
        "resource": mark.share.resource,
        "certain": mark.share.is_certain,
        "limit": mark.share.hard,
        "used": mark.used,
        "since": mark.since,
        "spent": mark.spent,
        "below": mark.below,
        "sent": [asdict(one) for one in mark.sent],
    }


def from_document(found: Any) -> GuardMark | None:
    """Return the mark of a document, None for what is none."""
    try:
        texts = [found[key] for key in ("id", "namespace", "pod", "container", "device")]
        identity, namespace, pod, container, device = (_text(text) for text in texts)
        share = GuardShare(
            identity,
            (namespace, pod, container),
            device,
            int(found["limit"]),
            _text(found["resource"]),
            is_certain=found["certain"] is True,
        )
        below = None if found["below"] is None else float(found["below"])
        sent = tuple(_sent(one) for one in found["sent"])
        since, spent = float(found["since"]), float(found["spent"])
        return GuardMark(share, int(found["used"]), since, spent, below, sent=sent)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _sent(found: dict[str, Any]) -> Sent:
    name = found["signal"]
    if name not in (TERM, END, FAILED):
        raise ValueError(name)
    at, waited = float(found["at"]), float(found["waited"])
    return Sent(int(found["pid"]), int(found["started"]), name, at, waited)


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError(found)
    return found
