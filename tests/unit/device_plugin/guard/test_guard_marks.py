# SPDX-License-Identifier: Apache-2.0
"""guard.json: the watched containers, the containers above their limit, and the guard's process."""

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
def state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path))
    return tmp_path


def change_file(**more: object) -> None:
    """Change keys of guard.json."""
    path = Path(guard_state.path())
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **more}))


def test_file_has_the_watched_containers_and_the_marks() -> None:
    sent = (Sent(7, 70, TERM, 5.0), Sent(8, 80, FAILED, 6.0))
    above = GuardMark(WEB, 150 * MIB, 100.0, sent=sent)
    guard_marks.write([above], KILL, (WEB, GUESSED))
    done = [{"signal": TERM, "pid": 7, "at": 5.0}, {"signal": None, "pid": 8, "at": 6.0}]
    over = {"used": 150 * MIB, "since": 100.0, "done": done}
    assert guard_state.watched() == {
        ("web", GPU): Watched(100 * MIB, KILL, over),
        ("guessed", GPU): Watched(100 * MIB, REPORT),  # uncertain: report only
    }
    assert guard_marks.read() == (above,)
    assert [one.is_bounded for one in guard_state.watched().values()] == [True, False]


def test_container_back_below_its_limit_is_not_reported_as_above() -> None:
    """The mark remains for a few seconds, in case the process ends and restarts."""
    guard_marks.write([GuardMark(WEB, 50 * MIB, 100.0, below=2.0)], KILL, (WEB,))
    assert guard_state.watched() == {("web", GPU): Watched(100 * MIB, KILL)}


def test_file_is_removed_with_the_last_watched_container(state_directory: Path) -> None:
    guard_marks.write([], REPORT, (WEB,))
    assert len(guard_state.watched()) == 1
    guard_marks.write([], NO_ACTION)
    assert not (state_directory / "guard.json").exists()
    assert guard_state.watched() == {}


def test_file_of_an_ended_plugin_has_marks_but_no_watched_containers() -> None:
    above = GuardMark(WEB, 150 * MIB, 100.0)
    guard_marks.write([above], KILL, (WEB,))
    with subprocess.Popen(["sleep", "0"]) as ended:
        pass
    change_file(pid=ended.pid)
    assert guard_state.watched() == {}
    assert guard_marks.read() == (above,)


def test_file_with_another_start_time_has_no_watched_containers() -> None:
    """The pid of the ended plugin may belong to another process."""
    guard_marks.write([], KILL, (WEB,))
    change_file(started=1)
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
def test_malformed_file_has_no_watched_containers(broken: dict[str, object]) -> None:
    guard_marks.write([], KILL, (WEB,))
    change_file(**broken)
    assert guard_state.watched() == {}


def test_malformed_mark_is_skipped() -> None:
    guard_marks.write([GuardMark(WEB, 150 * MIB, 100.0)], KILL, (WEB,))
    change_file(over=[{"id": "web", "device": GPU, "used": None}])
    assert guard_state.watched() == {("web", GPU): Watched(100 * MIB, KILL)}


def test_ps_does_not_load_the_guard() -> None:
    """`gpuhook ps` must start fast: it loads container_processes only, and no gRPC."""
    program = "import sys, gpuhook.cli.diagnosis.ps; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    loaded = done.stdout.decode().split()
    guard = "gpuhook.device_plugin.guard"
    used = {f"{guard}.container_processes"}
    assert {name for name in loaded if name.startswith(f"{guard}.")} == used
    assert not [name for name in loaded if name.startswith("grpc")]
