# SPDX-License-Identifier: Apache-2.0
"""--watch: drawn in place on a terminal, else one block after another, until a key or signal."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from gpuhook.cli import main

GPUHOOK = [sys.executable, "-m", "gpuhook"]


def command(place: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    """Return the arguments of a ps with an empty ledger, and its environment."""
    options = ["--watch", "--interval", "0.1", "--no-nvml", "--recorded", *words]
    env = {**os.environ, "GPUHOOK_STATE_DIR": str(place / "state")}
    return [*GPUHOOK, "ps", *options], env


def test_json_documents_follow_each_other(tmp_path: Path) -> None:
    """Each is one line; an interrupt ends the command without an error."""
    line, env = command(tmp_path, "-o", "json")
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=env) as watching:
        assert watching.stdout is not None
        found = [json.loads(watching.stdout.readline()) for _ in range(3)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 0
    assert [one["schema"] for one in found] == ["gpuhook/ps/v1"] * 3


def test_reader_that_closes_the_pipe_causes_no_traceback(tmp_path: Path) -> None:
    line, env = command(tmp_path, "-o", "yaml")
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert watching.stdout.readline() == "---\n"
        read = [watching.stdout.readline() for _ in range(3)]
        assert yaml.safe_load("".join(read))["schema"] == "gpuhook/ps/v1"
        watching.stdout.close()
        watching.wait(60)
        assert "Traceback" not in watching.stderr.read()


def test_terminal_is_drawn_in_place(tmp_path: Path) -> None:
    """On the alternate screen until q; then the terminal is as before."""
    line, env = command(tmp_path)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        line, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=env
    ) as watching:
        os.close(theirs)
        shown = until(ours, b"", count=2)
        os.write(ours, b"q")
        shown += until(ours, b"\x1b[?1049l")
        assert watching.wait(60) == 0
    os.close(ours)
    assert shown.startswith(b"\x1b[?1049h")
    assert b"CONTAINER" in shown
    assert shown.count(b"\x1b[H") >= 2


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "1e9"])
def test_interval_must_be_positive(seconds: str) -> None:
    for name in ("ps", "map"):
        done = CliRunner().invoke(main, [name, "--watch", "--interval", seconds])
        assert (done.exit_code, done.stdout) == (2, "")
        assert "'--interval'" in done.stderr


def until(fd: int, wanted: bytes, count: int = 0) -> bytes:
    """Return the output of a terminal up to these bytes, or up to this number of drawings."""
    shown = b""
    while (wanted not in shown) if wanted else shown.count(b"\x1b[J") < count:
        assert select.select([fd], [], [], 60)[0], shown
        shown += os.read(fd, 65536)
    return shown
