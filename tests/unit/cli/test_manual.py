# SPDX-License-Identifier: Apache-2.0
"""Manual pages and completions: complete like --help, and accepted by man and the shells."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from gpuhook.cli import completion, main, manual

PAGES = manual.pages()
SHELLS = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}


def _shown(name: str, tmp_path: Path) -> str:
    """Return a page as man(1) shows it, on one line; warnings of groff are failures."""
    page = tmp_path / name
    page.write_text(PAGES[name], encoding="utf-8")
    command = ["groff", "-man", "-Tascii", "-ww", "-P-cbou", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return " ".join(re.sub(r"-\n *", "-", done.stdout).split())


def test_every_command_has_a_page() -> None:
    assert {"gpuhook.1", "kubectl-gpuhook.1", "kubectl-gpuhook-ps.1"} <= set(PAGES)
    assert {f"gpuhook-{name}.1" for name in main.list_commands(click.Context(main))} <= set(PAGES)


def test_a_page_refers_to_pages_that_exist() -> None:
    """Hidden commands have no page."""
    for page in PAGES.values():
        others = page.rpartition(".SH SEE ALSO")[2].replace("\\-", "-")
        assert {f"{name}.1" for name in re.findall(r"(gpuhook[\w-]*)\(1\)", others)} <= set(PAGES)


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
@pytest.mark.parametrize("name", sorted(PAGES))
def test_page_has_every_option_of_help(name: str, tmp_path: Path) -> None:
    """Every option of --help is on the page, groff has no warning, and no mark of click is left."""
    shown = _shown(name, tmp_path)
    program = max((one for one in manual.ROOTS if name.startswith(one)), key=len)
    command: click.Command = manual.ROOTS[program]
    context = manual.root(program, command)
    rest = name.removesuffix(f".{manual.SECTION}").removeprefix(program).removeprefix("-")
    while rest:
        assert isinstance(command, click.Group)
        # A name may contain a dash.
        below = sorted(command.list_commands(context), key=len, reverse=True)
        word = next(one for one in below if f"{rest}-".startswith(f"{one}-"))
        found = command.get_command(context, word)
        assert found is not None
        command = found
        context = click.Context(command, info_name=word, parent=context)
        rest = rest[len(word) + 1 :]
    for param in command.get_params(context):
        if isinstance(param, click.Option) and not param.hidden:
            # groff may hyphenate a long name.
            assert max(param.opts, key=len).replace("-", "") in shown.replace("-", "")
    assert re.search(r"NAME .* SYNOPSIS .* DESCRIPTION .* EXIT STATUS .* SEE ALSO", shown)
    assert "\b" not in PAGES[name]


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_script_is_accepted_by_its_shell(shell: str, tmp_path: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "completion"
    script.write_text(completion.script(shell, main), encoding="utf-8")
    subprocess.run([*SHELLS[shell], str(script)], check=True, capture_output=True)


def _completed(words: str, number: int) -> list[str]:
    environment = os.environ | {
        completion.VARIABLE: "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)
    }  # fmt: skip
    command = [sys.executable, "-m", "gpuhook"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_commands_options_and_values_are_completed() -> None:
    assert _completed("gpuhook inv", 1) == ["inventory"]
    assert "--inventory" in _completed("gpuhook inventory --inv", 2)
    assert _completed("gpuhook inventory -o na", 3) == ["name"]
