# SPDX-License-Identifier: Apache-2.0
"""Stores the guard's marks and watched shares in the file of memory_limits/guard_state.py."""

from __future__ import annotations

import os
from dataclasses import asdict

from gpuhook.device_plugin.config.gpuhook_section import NO_ACTION
from gpuhook.device_plugin.guard.guard_policy import END, FAILED, TERM, GuardMark, Sent
from gpuhook.device_plugin.guard.guard_shares import GuardShare
from gpuhook.host.hot import procfs
from gpuhook.memory_limits import guard_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


def read() -> tuple[GuardMark, ...]:
    """Return the stored marks, () for a missing or faulty file."""
    over = guard_state.read().get("over")
    marks = [from_document(one) for one in (over if isinstance(over, list) else [])]
    return tuple(mark for mark in marks if mark is not None)


def write(
    marks: Iterable[GuardMark], action: str = NO_ACTION, watched: Iterable[GuardShare] = ()
) -> None:
    """Store the marks, the guard's action and the shares in its last sample. Raises OSError.

    Without marks and shares, the file is removed.
    """
    over = [document(mark) for mark in marks]
    shares = [
        {"id": one.container, "device": one.device, "limit": one.hard, "certain": one.is_certain}
        for one in watched
    ]
    if not (over or shares):
        guard_state.write(None)
        return
    pid = os.getpid()
    watcher = {"pid": pid, "started": procfs.start_time(pid), "action": action}
    guard_state.write({**watcher, "watched": shares, "over": over})


def document(mark: GuardMark) -> dict[str, Any]:
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


def from_document(content: Any) -> GuardMark | None:
    """Return the mark of an object made by document(), None for any other content."""
    try:
        texts = [content[key] for key in ("id", "namespace", "pod", "container", "device")]
        identity, namespace, pod, container, device = (_text(text) for text in texts)
        share = GuardShare(
            identity,
            (namespace, pod, container),
            device,
            int(content["limit"]),
            _text(content["resource"]),
            is_certain=content["certain"] is True,
        )
        below = None if content["below"] is None else float(content["below"])
        sent = tuple(_sent(one) for one in content["sent"])
        since, spent = float(content["since"]), float(content["spent"])
        return GuardMark(share, int(content["used"]), since, spent, below, sent=sent)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _sent(content: dict[str, Any]) -> Sent:
    name = content["signal"]
    if name not in (TERM, END, FAILED):
        raise ValueError(name)
    at, waited = float(content["at"]), float(content["waited"])
    return Sent(int(content["pid"]), int(content["started"]), name, at, waited)


def _text(content: object) -> str:
    if not isinstance(content, str):
        raise TypeError(content)
    return content
