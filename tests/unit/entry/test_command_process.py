# SPDX-License-Identifier: Apache-2.0
"""`gpuhook refresh` as those run it who start containers: once, not for ever, and with a reason."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from gpuhook.entry import cold_command, command_process


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


class Program:
    """A program of this name that runs a shell script, and the number of its calls."""

    def __init__(self, place: Path, text: str) -> None:
        self.path = place / "gpuhook"
        self._calls = place / "calls"
        self.path.write_text(f'#!/bin/sh\necho "$*" >> {self._calls}\n{text}\n')
        self.path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines() if self._calls.exists() else []

    def refresh(self, is_needed: bool = True, is_mended: bool = False) -> str:
        asked = iter((is_needed, not is_mended))
        return cold_command.Compiler(str(self.path)).refresh(lambda: next(asked))


def test_it_ends_well(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What it says is in no engine's way, and kept for who looks."""
    program = Program(tmp_path, "echo done; echo warning: x >&2")
    assert program.refresh() == ""
    assert program.calls == ["refresh"]
    assert capfd.readouterr() == ("", "")
    assert (tmp_path / "state/refresh.log").read_text() == "done\nwarning: x\n"


def test_needless_by_the_time_it_is_our_turn(tmp_path: Path) -> None:
    program = Program(tmp_path, "true")
    assert program.refresh(is_needed=False) == ""
    assert program.calls == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo a; echo 'Error GH1206: x: no'; echo hint: y; exit 1", "GH1206: x: no"),
        ("echo what a day; exit 7", "what a day"),
        ("kill -9 $$", "it was killed by signal 9"),
        ("printf 'Error \\377\\n'; exit 1", "\ufffd"),
    ],
)
def test_it_fails_with_a_reason(text: str, reason: str, tmp_path: Path) -> None:
    assert Program(tmp_path, text).refresh() == reason


def test_what_has_just_failed_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that wait for a broken driver fail at once; later it is tried again."""
    program = Program(tmp_path, "echo Error GH1: no; exit 1")
    assert [program.refresh() for _ in range(3)] == ["GH1: no"] * 3
    assert len(program.calls) == 1
    monkeypatch.setattr(command_process, "_FAILURE_AGE", -1.0)
    assert program.refresh() == "GH1: no"
    assert len(program.calls) == 2


def test_a_success_is_no_reason_to_wait(tmp_path: Path) -> None:
    program = Program(tmp_path, "true")
    assert [program.refresh(is_mended=True) for _ in range(2)] == ["", ""]
    assert len(program.calls) == 2


def test_what_has_not_helped_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No container that asks for what is not there has it run at each of its starts."""
    program = Program(tmp_path, "true")
    assert [program.refresh(), program.refresh()] == ["", command_process._NO_HELP]
    assert len(program.calls) == 1
    assert program.refresh(is_needed=False) == ""
    monkeypatch.setattr(command_process, "_FAILURE_AGE", -1.0)
    assert program.refresh() == ""
    assert len(program.calls) == 2


def test_one_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_process, "_TIMEOUT", 0.3)
    program = Program(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    assert "did not end in time" in program.refresh()
    pid = int((tmp_path / "pid").read_text())
    os.waitpid(pid, 0)
    assert not Path(f"/proc/{pid}").exists()


def test_another_one_that_hangs(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_process, "_TIMEOUT", 0.1)
    state.mkdir()
    with (state / "refresh-wanted.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = Program(tmp_path, "true")
        assert "another process has been running it" in program.refresh()
    assert program.calls == []


def test_nothing_of_a_tenant_is_written_through(tmp_path: Path, state: Path) -> None:
    """Links in the state directory lead nowhere."""
    state.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (state / "refresh-wanted.lock").symlink_to(victim)
    assert "refresh-wanted.lock" in Program(tmp_path, "true").refresh()
    (state / "refresh-wanted.lock").unlink()
    (state / "refresh.log").symlink_to(victim)
    assert Program(tmp_path, "true").refresh() != ""
    assert victim.read_text() == "mine"


def test_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuhook.host.hot.state.PROGRAM_DIRS", ())
    told = cold_command.Compiler(str(tmp_path / "launcher")).refresh(lambda: True)
    assert told.startswith("there is no gpuhook in ")


def test_a_broken_note_is_no_failure(tmp_path: Path, state: Path) -> None:
    state.mkdir()
    future = time.monotonic() + 1000
    for text in ("x", f"{future} not yet", "nan no", "\0"):
        (state / "refresh-wanted.lock").write_text(text)
        assert Program(tmp_path, "true").refresh() == ""


def test_variables_of_who_starts_a_container_are_not_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spec is for all containers: only what is said of gpuhook counts."""
    for name in ("XDG_DATA_DIRS", "CUDA_MPS_PIPE_DIRECTORY", "NVIDIA_CTK_CDI_GENERATE_MODE"):
        monkeypatch.setenv(name, "/home/somebody")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("PYTHONPATH", "/home/somebody")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("GPUHOOK_CDI_SPEC_DIRS", "/somewhere")
    program = Program(tmp_path, f"env > {tmp_path}/env")
    program.refresh()
    told = dict(line.partition("=")[::2] for line in (tmp_path / "env").read_text().splitlines())
    assert told["GPUHOOK_CDI_SPEC_DIRS"] == "/somewhere"
    assert told["PATH"] == "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert "/home/somebody" not in told.values()
    assert "LD_PRELOAD" not in told
