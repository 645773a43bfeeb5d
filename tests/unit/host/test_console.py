# SPDX-License-Identifier: Apache-2.0
"""Progress of long work is shown on a terminal only."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

WAITING = """
import threading
from gpuhook.cli import main
from gpuhook.host import console
import click

@main.command()
def wait():
    with console.progress("asking the driver", after={after}):
        threading.Event().wait({wait})
    click.echo("done")

main.get_command = lambda ctx, name: wait
main()
"""


def _talk(*arguments: str, after: float, wait: float, terminal: bool) -> tuple[str, str]:
    """Return (standard output, standard error) of a command that waits."""
    program = WAITING.format(after=after, wait=wait)
    return output_of([sys.executable, "-c", program, *arguments, "wait"], terminal=terminal)


def output_of(command: list[str], *, terminal: bool = True) -> tuple[str, str]:
    reader, writer = pty.openpty() if terminal else os.pipe()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=writer, check=True, text=True)
    os.close(writer)
    said = b""
    try:
        while chunk := os.read(reader, 4096):
            said += chunk
    except OSError:  # the other side of the terminal is closed
        pass
    os.close(reader)
    return done.stdout, said.decode()


def test_progress_is_shown_on_a_terminal_and_removed_at_the_end() -> None:
    out, said = _talk(after=0.01, wait=0.5, terminal=True)
    assert out == "done\n"
    assert "asking the driver ... 0 s" in said
    assert said.endswith("\r\x1b[K")


def test_short_work_shows_nothing() -> None:
    assert _talk(after=30, wait=0, terminal=True) == ("done\n", "")


def test_inner_work_is_not_shown() -> None:
    program = """
import threading
from gpuhook.host import console
for what in ("outer", "later"):
    with console.progress(what, after=0.01), console.progress("inner", after=0.01):
        threading.Event().wait(0.3)
"""
    said = output_of([sys.executable, "-c", program])[1]
    assert said.index("outer") < said.index("later")
    assert "inner" not in said


def test_commands_that_read_a_node_show_progress(tmp_path: Path) -> None:
    """Without a terminal, doctor prints only the examination."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "etc").mkdir()
    program = f"""
import threading
from gpuhook.cli.diagnosis import doctor; from gpuhook.cli import main
from gpuhook.host import console
console.progress.__wrapped__.__defaults__ = (0.01,)
look = doctor.examine
doctor.examine = lambda *of: threading.Event().wait(0.3) or look(*of)
main(["doctor", "--root", {str(tmp_path)!r}])
"""
    assert "looking at the node ... 0 s" in output_of([sys.executable, "-c", program])[1]
    assert "looking at" not in output_of([sys.executable, "-c", program], terminal=False)[1]


def test_without_a_terminal_or_with_quiet_nothing_is_shown() -> None:
    assert _talk(after=0.01, wait=0.3, terminal=False) == ("done\n", "")
    assert _talk("--quiet", after=0.01, wait=0.3, terminal=True) == ("done\n", "")
