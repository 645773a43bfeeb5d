# SPDX-License-Identifier: Apache-2.0
"""What the guard leaves for others to read: whom it watches, who is above, and that it lives."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.device_plugin.config.gpuhook_section import KILL, NO_ACTION, REPORT
from gpuhook.device_plugin.guard import guard_marks
from gpuhook.device_plugin.guard.guard_policy import FAILED, TERM, GuardMark, Sent
from gpuhook.device_plugin.guard.guard_shares import GuardShare
from gpuhook.memory_limits import guard_state
from gpuhook.memory_limits.guard_state import Watched

MIB = 1 << 20
GPU = "GPU-1"
WEB = GuardShare("web", ("ns", "web", "main"), GPU, 100 * MIB, "nvidia.com/gpu")
GUESSED = replace(WEB, container="guessed", is_certain=False)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path))
    return tmp_path


def rewritten(**more: object) -> None:
    """Change what is in the file."""
    path = Path(guard_state.path())
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **more}))


def test_who_is_watched() -> None:
    sent = (Sent(7, 70, TERM, 5.0), Sent(8, 80, FAILED, 6.0))
    above = GuardMark(WEB, 150 * MIB, 100.0, sent=sent)
    guard_marks.write([above], KILL, (WEB, GUESSED))
    done = [{"signal": TERM, "pid": 7, "at": 5.0}, {"signal": None, "pid": 8, "at": 6.0}]
    over = {"used": 150 * MIB, "since": 100.0, "done": done}
    assert guard_state.watched() == {
        ("web", GPU): Watched(100 * MIB, KILL, over),
        ("guessed", GPU): Watched(100 * MIB, REPORT),  # whose it is, is not sure: nothing is ended
    }
    assert guard_marks.read() == (above,)
    assert [one.is_bounded for one in guard_state.watched().values()] == [True, False]


def test_who_came_down_is_not_above() -> None:
    """The mark stays for a few seconds, for a process that ends and comes back."""
    guard_marks.write([GuardMark(WEB, 50 * MIB, 100.0, below=2.0)], KILL, (WEB,))
    assert guard_state.watched() == {("web", GPU): Watched(100 * MIB, KILL)}


def test_the_file_goes_with_the_last_that_is_watched(place: Path) -> None:
    guard_marks.write([], REPORT, (WEB,))
    assert len(guard_state.watched()) == 1
    guard_marks.write([], NO_ACTION)
    assert not (place / "guard.json").exists()
    assert guard_state.watched() == {}


def test_what_a_dead_plugin_wrote_counts_for_nobody_but_its_marks_for_the_next() -> None:
    above = GuardMark(WEB, 150 * MIB, 100.0)
    guard_marks.write([above], KILL, (WEB,))
    with subprocess.Popen(["sleep", "0"]) as ended:
        pass
    rewritten(pid=ended.pid)
    assert guard_state.watched() == {}
    assert guard_marks.read() == (above,)


def test_another_process_of_the_same_pid_is_another_one() -> None:
    guard_marks.write([], KILL, (WEB,))
    rewritten(started=1)
    assert guard_state.watched() == {}


@pytest.mark.parametrize(
    "broken",
    [
        {"format": 3},
        {"pid": None},
        {"started": None},
        {"watched": {}},
        {"watched": [3, {"id": "web"}, {"id": "web", "device": GPU, "limit": "much"}]},
    ],
)
def test_what_is_not_understood_counts_for_nobody(broken: dict[str, object]) -> None:
    guard_marks.write([], KILL, (WEB,))
    rewritten(**broken)
    assert guard_state.watched() == {}


def test_a_broken_mark_leaves_the_rest() -> None:
    guard_marks.write([GuardMark(WEB, 150 * MIB, 100.0)], KILL, (WEB,))
    rewritten(over=[{"id": "web", "device": GPU, "used": None}])
    assert guard_state.watched() == {("web", GPU): Watched(100 * MIB, KILL)}


def test_it_is_read_without_the_guard() -> None:
    """`gpuhook ps` starts often: of the guard it loads what tells of processes, and no gRPC."""
    program = "import sys, gpuhook.cli.diagnosis.ps; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    loaded = done.stdout.decode().split()
    guard = "gpuhook.device_plugin.guard"
    used = {f"{guard}.container_processes"}
    assert {name for name in loaded if name.startswith(f"{guard}.")} == used
    assert not [name for name in loaded if name.startswith("grpc")]
