# SPDX-License-Identifier: Apache-2.0
"""Who waits at a terminal is told what for; nobody else is."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

WAITING = """
import threading
from gpuhook.cli import main, progress
import click

@main.command()
def wait():
    with progress.telling("asking nobody", after={after}):
        threading.Event().wait({wait})
    click.echo("done")

main.get_command = lambda ctx, name: wait
main()
"""


def _talk(*arguments: str, after: float, wait: float, terminal: bool) -> tuple[str, str]:
    """Return (standard output, standard error) of a command that waits."""
    reader, writer = pty.openpty() if terminal else os.pipe()
    program = WAITING.format(after=after, wait=wait)
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments, "wait"],
        stdout=subprocess.PIPE,
        stderr=writer,
        check=True,
        text=True,
    )
    os.close(writer)
    said = b""
    try:
        while chunk := os.read(reader, 4096):
            said += chunk
    except OSError:  # the other side of the terminal is closed
        pass
    os.close(reader)
    return done.stdout, said.decode()


def test_a_terminal_is_told_and_the_line_goes_at_the_end() -> None:
    out, said = _talk(after=0.01, wait=0.5, terminal=True)
    assert out == "done\n"
    assert "asking nobody ... 0 s" in said
    assert said.endswith("\r\x1b[K")


def test_what_is_soon_done_says_nothing() -> None:
    assert _talk(after=30, wait=0, terminal=True) == ("done\n", "")


def test_no_terminal_and_quiet_are_told_nothing() -> None:
    assert _talk(after=0.01, wait=0.3, terminal=False) == ("done\n", "")
    assert _talk("--quiet", after=0.01, wait=0.3, terminal=True) == ("done\n", "")
