# SPDX-License-Identifier: Apache-2.0
"""Whether the first process of a container has exited, by the states of runc and crun."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpuhook.containers.hot.first_process import KEYS, has_exited
from gpuhook.host.hot import procfs

PID = os.getpid()
STARTED = procfs.start_time(PID) or 0


STATES: dict[str, tuple[object, object, bool]] = {
    "runs": (PID, STARTED, False),
    "another process has its pid": (PID, STARTED + 1, True),
    "gone": (2**31 - 1, STARTED, True),
    "unknown start": (PID, 0, False),
    "no start": (PID, None, False),
    "stopped early": (0, STARTED, False),
    "not a pid": ("1", STARTED, False),
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("which", STATES)
def test_states(name: str, which: str, tmp_path: Path) -> None:
    """What is unknown is no exit: the device would serve two containers."""
    pid, started, is_exited = STATES[which]
    (tmp_path / "one").mkdir()
    document = dict(zip(KEYS[name], (pid, started), strict=True))
    (tmp_path / "one" / name).write_text(json.dumps(document), encoding="utf-8")
    assert has_exited(str(tmp_path), "one") == is_exited


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_broken_states(text: str, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    for name in KEYS:
        (tmp_path / "one" / name).write_text(text, encoding="utf-8")
    assert not has_exited(str(tmp_path), "one")
    assert not has_exited(str(tmp_path), "other")
