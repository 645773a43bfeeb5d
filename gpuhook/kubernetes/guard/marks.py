# SPDX-License-Identifier: Apache-2.0
"""guard.json below the state directory: who is above its limit, and what was done about it.

The plugin alone writes it, reads it when it is started anew, and removes it when nobody is above
a limit; `gpuhook ps` shows it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict

from gpuhook import files, state
from gpuhook.errors import GpuhookError
from gpuhook.kubernetes.guard import needed
from gpuhook.kubernetes.guard.judgement import END, FAILED, TERM, Mark, Sent
from gpuhook.kubernetes.guard.shares import Share

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

FORMAT = 1
_MAX_SIZE = 4 << 20


def path() -> str:
    """Return the path of the file."""
    return needed.marks_path()


def read() -> tuple[Mark, ...]:
    """Return the marks that the plugin wrote last, () where there is no file to be believed."""
    try:
        if not state.usable(os.lstat(path())):
            return ()
        found = json.loads(files.read(path(), _MAX_SIZE))
    except (OSError, ValueError, RecursionError, GpuhookError):
        return ()
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        return ()
    over = found.get("over")
    made = [from_document(one) for one in (over if isinstance(over, list) else [])]
    return tuple(mark for mark in made if mark is not None)


def write(marks: Iterable[Mark]) -> None:
    """Write the marks; without any, remove the file. Raises OSError."""
    over = [document(mark) for mark in marks]
    if not over:
        try:
            os.unlink(path())
        except FileNotFoundError:
            return
        return
    os.makedirs(state.directory(), 0o755, exist_ok=True)
    text = json.dumps({"format": FORMAT, "over": over}, indent=2) + "\n"
    files.replace(path(), text.encode(), mode=0o644)


def document(mark: Mark) -> dict[str, Any]:
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


def from_document(found: Any) -> Mark | None:
    """Return the mark of a document, None for what is none."""
    try:
        texts = [found[key] for key in ("id", "namespace", "pod", "container", "device")]
        identity, namespace, pod, container, device = (_text(text) for text in texts)
        share = Share(
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
        return Mark(share, int(found["used"]), since, spent, below, sent=sent)
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
