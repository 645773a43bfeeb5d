# SPDX-License-Identifier: Apache-2.0
"""Progress of long work is shown on a terminal only."""

from __future__ import annotations

import importlib
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuhook.cli import kubectl_plugin, main
from gpuhook.host import console
from gpuhook.host.hot import engine_log

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


COUNTED = """
import threading
from gpuhook.host import console

def wait(*_):
    threading.Event().wait(0.3)
    return {{}}

console.progress.__wrapped__.__defaults__ = (0.5,)
found = [type("Found", (), dict(id=str(n), is_ours=True)) for n in range(5)]
{rest}
"""
DOCTOR = """
from gpuhook.inspect import gpu_containers
gpu_containers.find.everything = lambda roots: (found, {})
gpu_containers._read, gpu_containers._AT_ONCE = wait, 1
with console.progress("looking at the node"):
    gpu_containers.inspect_all()
"""
COMPARE = """
from gpuhook.compare import node_comparison
node_comparison.NodeComparison._result, node_comparison._PROCESSES = wait, 1
with console.progress("comparing"):
    node_comparison.NodeComparison(None, "").containers(found)
"""
REPAIR = """
from gpuhook.cli import main
from gpuhook.cli.containers import repair
repair.find.everything = lambda roots: (found, {})
repair.container_worker.ContainerWorker.do = wait
main(["repair", "--all", "--dry-run"], standalone_mode=False)
"""


@pytest.mark.parametrize(
    ("rest", "work"),
    [(DOCTOR, "looking at the node"), (COMPARE, "comparing"), (REPAIR, "repairing")],
    ids=["doctor", "compare", "repair"],
)
def test_work_on_many_containers_shows_how_many_are_done(rest: str, work: str) -> None:
    program = [sys.executable, "-c", COUNTED.format(rest=rest)]
    said = output_of(program)[1]
    assert re.search(rf"{work}: containers [0-4]/5 \.\.\. 0 s", said)
    assert "\r\x1b[K" in said.partition("/5")[2]
    assert "/5" not in output_of(program, terminal=False)[1]


def test_count_ends_with_the_work() -> None:
    """Also if it ends early: the next line has no number of other items."""
    program = """
import threading
from gpuhook.host import console
with console.progress("first", after=0.1):
    for number in console.counted(range(9), 9, "commands"):
        if number == 3:
            threading.Event().wait(0.3)
            break
with console.progress("second", after=0.01):
    threading.Event().wait(0.3)
"""
    said = output_of([sys.executable, "-c", program])[1]
    assert "first: commands 3/9 ... 0 s" in said
    assert "second ... 0 s" in said


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


def test_dumb_terminal_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that cannot clear a line would keep every line of the progress."""
    monkeypatch.setenv("TERM", "dumb")
    assert _talk(after=0.01, wait=0.3, terminal=True) == ("done\n", "")


def test_message_replaces_the_progress() -> None:
    program = """
import threading
from gpuhook.host import console
with console.progress("reading", after=0.01):
    threading.Event().wait(0.3)
    console.warn("no answer")
"""
    said = output_of([sys.executable, "-c", program])[1]
    assert "reading ... 0 s\r\x1b[Kwarning: no answer\r\n" in said


@pytest.mark.parametrize(
    "words",
    [
        "attach x --device 0",
        "compare --all",
        "configure docker --dry-run --host-root HOST --route cdi",
        "configure undo docker --host-root HOST",
        "configure users --host-root HOST",
        "detach x --device 0",
        "doctor --checks host",
        "explain --env NVIDIA_VISIBLE_DEVICES=0 --inventory t4",
        "generate-cdi",
        "inspect x",
        "inventory",
        "kubectl ps",
        "limits clear x",
        "limits set x --limit 4g",
        "limits show",
        "map",
        "node uninstall --host-root HOST",
        "ps",
        "refresh --dry-run",
        "repair x",
        "support-bundle --dry-run --no-logs",
        "system create-device-nodes --driver-root HOST --dev-root HOST",
    ],
)
def test_long_work_of_every_command(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command that waits for drivers, engines, disks or containers names its work."""
    named: list[str] = []

    @contextmanager
    def progress(work: str) -> Iterator[None]:
        named.append(work)
        yield

    monkeypatch.setattr(console, "progress", progress)
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "host/etc").mkdir(parents=True)
    program = kubectl_plugin.main if words.startswith("kubectl") else main
    arguments = words.removeprefix("kubectl ").replace("HOST", str(tmp_path / "host")).split()
    CliRunner().invoke(program, arguments, prog_name="gpuhook")
    assert named


def test_lack_of_memory_has_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no internal error, and nothing is made of it while the frames hold the memory."""

    def fail(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(importlib, "import_module", fail)
    done = CliRunner().invoke(main, ["ps"])
    assert done.exit_code == 1
    assert done.stderr.startswith("Error GH1492: there is not enough memory\nhint: ")
    assert engine_log.unforeseen(MemoryError()).code == "GH1492"
