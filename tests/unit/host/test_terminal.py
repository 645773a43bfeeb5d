# SPDX-License-Identifier: Apache-2.0
"""Tables, colours and characters as the terminal allows; a pipe gets every column in full."""

from __future__ import annotations

import fcntl
import functools
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuhook.host import console, text_table
from gpuhook.host.terminal import terminal_features
from gpuhook.host.terminal.display_width import width_of
from gpuhook.host.text_table import Terminal
from gpuhook.usage import ps_text

CHECKOUT = Path(__file__).parents[3]
WIDTHS = (40, 60, 80, 200)
TABLES = [
    "inventory --inventory h100x8",
    "inventory --inventory a100-mig",
    "doctor --list",
    "cdi list --spec-dir SPECS",
    "cdi resolve nvidia.com/gpu=0 --spec-dir SPECS",
]
PLAIN = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT), "TERM": "xterm"}


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a CDI spec."""
    place = tmp_path_factory.mktemp("specs")
    run(f"generate-cdi --inventory h100x8 --output-file {place}/nvidia.yaml")
    return place


@functools.cache
def run(words: str, **env: str) -> str:
    """Return what gpuhook prints into a pipe."""
    command = [sys.executable, "-m", "gpuhook", *words.split()]
    done = subprocess.run(command, capture_output=True, check=True, env={**PLAIN, **env})
    return done.stdout.decode()


def shown(words: str, columns: int, **env: str) -> str:
    """Return what gpuhook prints on a terminal of this width."""
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "gpuhook", *words.split()]
    with subprocess.Popen(command, stdout=writer, stderr=writer, env={**PLAIN, **env}) as process:
        os.close(writer)
        found = b""
        try:
            while chunk := os.read(reader, 65536):
                found += chunk
        except OSError:  # no process has the terminal any more
            pass
        os.close(reader)
    assert process.returncode == 0, found
    return found.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("words", TABLES)
def test_table_fits_the_terminal(words: str, columns: int, specs: Path) -> None:
    """No line is wider; a note on standard error names the columns that are omitted."""
    words = words.replace("SPECS", str(specs))
    full = run(words)
    text, _, note = shown(words, columns).partition("not shown in this narrow terminal: ")
    is_driver = words.startswith("inventory")
    lines = text.splitlines()[is_driver:]
    assert max(map(width_of, lines)) <= columns
    headers = set(re.findall(r"[A-Z][A-Z -]+", full.splitlines()[2 * is_driver]))
    left_out = set(note.partition(";")[0].split(", ")) if note else set()
    assert left_out.isdisjoint(re.findall(r"[A-Z][A-Z -]+", lines[is_driver]))
    assert columns < 200 or not left_out
    assert headers


@pytest.mark.parametrize("words", [*TABLES, "map --inventory h100x8"])
def test_pipe_has_all(words: str, specs: Path) -> None:
    """A pipe gets no escape codes and no shortened table, whatever the variables say."""
    words = words.replace("SPECS", str(specs))
    text = run(words)
    assert "\x1b" not in text
    if not words.startswith("map"):  # a picture has a width
        assert run(words, COLUMNS="40") == text
        assert "…" not in text


def test_ps_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """MEMORY is the last column to go; wide output is not shortened."""
    memory = ["7680Mi/81559Mi", "0/81559Mi"]
    names = ["notebook-0/jupyter", "llm-serving-7d9f5c6b8-x2m4q/server"]
    row = ["3f2a3f2a3f2a", "", "nvidia/pytorch:24.05-py3", "0,1 (H100 80GB HBM3)", "", "38%", "97%"]
    headers = list(ps_text.HEADERS)
    rows = [
        [row[0], name, *row[2:4], used, *row[5:], "20Gi driver"]
        for name, used in zip(names, memory, strict=True)
    ]
    for columns in WIDTHS:
        monkeypatch.setattr(terminal_features, "width", lambda columns=columns: columns)
        text, left_out = console.table_text(headers, rows, order=ps_text.ORDER)
        lines = text.splitlines()
        assert max(map(width_of, lines)) <= columns
        assert {"CONTAINER", "MEMORY"} <= set(lines[0].split())
        assert set(lines[0].split()) == set(headers) - set(left_out)
    wide, left_out = console.table_text(headers, rows, is_wide=True)
    assert (wide, left_out) == (text_table.table(headers, rows), [])


CELLS = st.text(min_size=0, max_size=60) | st.sampled_from(
    ["학습-작업-0", "trainer\x1b[31m", "no device node of GPU 3 in this container", "a/b/c" * 9]
)


@given(
    st.integers(1, 6).flatmap(
        lambda count: st.lists(
            st.lists(CELLS, min_size=count, max_size=count), min_size=0, max_size=5
        )
    ),
    st.integers(20, 200),
    st.booleans(),
)
@example([["漢字" * 20, "x" * 40, "a sentence of many words that has to go somewhere"]], 40, False)
def test_any_table_fits(rows: list[list[str]], width: int, no_headers: bool) -> None:
    """No line is wider than the terminal, and no cell has control characters."""
    headers = [f"HEADER{number}" for number in range(len(rows[0]) if rows else 2)]
    text, left_out = text_table.fitted(headers, rows, Terminal(width), no_headers=no_headers)
    assert text.replace("\n", "").isprintable()
    full = text_table.table(None if no_headers else headers, rows).splitlines()
    assert all(width_of(line) <= width for line in text.splitlines())
    if full and max(map(width_of, full)) <= width:
        assert (text.splitlines(), left_out) == (full, [])
    assert headers[0] not in left_out


def test_every_table_goes_through_the_console() -> None:
    """A command that prints headers itself would ignore the terminal."""
    files = [path for path in (CHECKOUT / "gpuhook").rglob("*.py") if path.name != "console.py"]
    calls = [
        call
        for path in files
        if "text_table import" in (text := path.read_text())
        for call in re.findall(r"(?<![.\w])table\(([^,)]*)", text)
        if path.name != "text_table.py"
    ]
    assert set(calls) == {"None"}


@pytest.mark.parametrize(
    ("env", "is_terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
        ({"CLICOLOR": "0"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"CLICOLOR_FORCE": "1"}, False, True),
        ({"CLICOLOR_FORCE": "0"}, False, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True, True),
    ],
)
def test_colour(env: dict[str, str], is_terminal: bool, expected: bool) -> None:
    words = "map --inventory t4"
    text = shown(words, 80, **env) if is_terminal else run(words, **env)
    assert ("\x1b[" in text) is expected


@pytest.mark.parametrize(
    ("env", "is_unicode"),
    [
        ({}, True),
        ({"LANG": "C.UTF-8"}, True),
        ({"LANG": "C"}, False),
        ({"LC_ALL": "C"}, False),
        ({"LC_ALL": "POSIX", "LANG": "en_US.UTF-8"}, False),
        ({"LC_ALL": "C.UTF-8", "LANG": "C"}, True),
        ({"PYTHONIOENCODING": "latin-1"}, False),
    ],
)
def test_characters(env: dict[str, str], is_unicode: bool) -> None:
    """In the locale C, pictures and shortened tables have ASCII only."""
    assert shown("map --inventory h100x8", 60, NO_COLOR="1", **env).isascii() is not is_unicode
    assert shown("inventory --inventory h100x8", 40, **env).isascii() is not is_unicode


def test_cells_of_the_c_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_features, "width", lambda: 60)
    monkeypatch.setattr(terminal_features, "is_unicode", lambda: False)
    text, _ = console.table_text(["NAME", "NOTE"], [["학습", "x" * 80]])
    assert text.isascii()
    assert "\\ud559" in text
    assert "~" in text
