# SPDX-License-Identifier: Apache-2.0
"""`gpuhook refresh` run by a program that starts containers: once, with a deadline and a reason."""

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
    """A program with this name that runs a shell script, and the number of its calls."""

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


def test_output_of_a_successful_run_goes_to_a_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The engine gets none of it."""
    program = Program(tmp_path, "echo done; echo warning: x >&2")
    assert program.refresh() == ""
    assert program.calls == ["refresh"]
    assert capfd.readouterr() == ("", "")
    assert (tmp_path / "state/refresh.log").read_text() == "done\nwarning: x\n"


def test_refresh_that_is_no_longer_needed_is_not_run(tmp_path: Path) -> None:
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
def test_failure_has_a_reason(text: str, reason: str, tmp_path: Path) -> None:
    assert Program(tmp_path, text).refresh() == reason


def test_recent_failure_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that wait for a broken driver fail at once; later it is tried again."""
    program = Program(tmp_path, "echo Error GH1: no; exit 1")
    assert [program.refresh() for _ in range(3)] == ["GH1: no"] * 3
    assert len(program.calls) == 1
    monkeypatch.setattr(command_process, "_FAILURE_AGE", -1.0)
    assert program.refresh() == "GH1: no"
    assert len(program.calls) == 2


def test_run_after_a_success_does_not_wait(tmp_path: Path) -> None:
    program = Program(tmp_path, "true")
    assert [program.refresh(is_mended=True) for _ in range(2)] == ["", ""]
    assert len(program.calls) == 2


def test_run_that_did_not_help_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that requests a missing GPU does not cause a run at each of its starts."""
    program = Program(tmp_path, "true")
    assert [program.refresh(), program.refresh()] == ["", command_process._NO_HELP]
    assert len(program.calls) == 1
    assert program.refresh(is_needed=False) == ""
    monkeypatch.setattr(command_process, "_FAILURE_AGE", -1.0)
    assert program.refresh() == ""
    assert len(program.calls) == 2


def test_hanging_run_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_process, "_TIMEOUT", 0.3)
    program = Program(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    assert "did not finish in time" in program.refresh()
    pid = int((tmp_path / "pid").read_text())
    os.waitpid(pid, 0)
    assert not Path(f"/proc/{pid}").exists()


def test_hanging_run_of_another_process_is_a_failure(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_process, "_TIMEOUT", 0.1)
    state.mkdir()
    with (state / "refresh-wanted.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = Program(tmp_path, "true")
        assert "another process has been running it" in program.refresh()
    assert program.calls == []


def test_links_in_the_state_directory_are_not_followed(tmp_path: Path, state: Path) -> None:
    state.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (state / "refresh-wanted.lock").symlink_to(victim)
    assert "refresh-wanted.lock" in Program(tmp_path, "true").refresh()
    (state / "refresh-wanted.lock").unlink()
    (state / "refresh.log").symlink_to(victim)
    assert Program(tmp_path, "true").refresh() != ""
    assert victim.read_text() == "mine"


def test_missing_program_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuhook.host.hot.state.PROGRAM_DIRS", ())
    told = cold_command.Compiler(str(tmp_path / "launcher")).refresh(lambda: True)
    assert told.startswith("there is no gpuhook in ")


def test_broken_record_of_a_failure_is_ignored(tmp_path: Path, state: Path) -> None:
    state.mkdir()
    future = time.monotonic() + 1000
    for text in ("x", f"{future} not yet", "nan no", "\0"):
        (state / "refresh-wanted.lock").write_text(text)
        assert Program(tmp_path, "true").refresh() == ""


def test_variables_of_the_caller_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spec is for all containers: only variables of gpuhook itself apply."""
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
