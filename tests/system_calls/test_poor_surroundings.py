# SPDX-License-Identifier: Apache-2.0
"""Commands with closed or full streams, low limits, and without variables or a directory.

Each ends with the status 0, 1 or 2, without a traceback, and never reports an internal error.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.contract.installation import Installation
from tests.depth import cases, depth
from tests.figures import Figures
from tests.system_calls.poor_surroundings import SILENT, SURROUNDINGS

COMMANDS = """
--version; --help; inventory; ps; ps -o json; doctor; explain --env NVIDIA_VISIBLE_DEVICES=0
labels --oneshot --output-file=; config show; cdi list; map; generate-cdi --output-file -
health list; configure show; completion bash; limits show; nope; inspect nope
refresh --dry-run; support-bundle --dry-run
"""
LINES = [line.split() for line in COMMANDS.replace("\n", ";").split(";") if line.strip()]
EVERYDAY = ("stderr full", "little data")


@pytest.mark.soak
@pytest.mark.parametrize("name", cases(SURROUNDINGS, EVERYDAY))
def test_command_in_poor_surroundings(
    name: str, apart: Installation, tmp_path: Path, figures: Figures
) -> None:
    """One error with a code, or the answer."""
    lines = LINES[:: depth(10, 4, 1)]
    findings = []
    for words in lines:
        done = _run(name, words, apart, tmp_path)
        trouble = _trouble(name, done)
        if trouble:
            findings.append(f"{words}: {trouble}: {done}")
    figures.record(f"commands in poor surroundings: {name}", f"{len(lines)} commands")
    assert not findings, "\n".join(findings)


def test_standard_error_that_is_full_stops_no_command(apart: Installation, tmp_path: Path) -> None:
    """The answer is whole, and the status is that of a run with a working standard error."""
    words = ["ps"]  # it warns: nothing says where this driver is
    usual = _run("umask 0", words, apart, tmp_path)
    full = _run("stderr full", words, apart, tmp_path)
    assert usual.stderr != ""
    assert usual.returncode == full.returncode == 0
    assert usual.stdout == full.stdout != ""


def _run(
    name: str, words: list[str], node: Installation, place: Path
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **node.env, "HOME": str(place)}
    given = [f"{key}={value}" for key, value in node.env.items()] if "env -i" in name else []
    command = [*given, str(node.bindir / "gpuhook"), *words]
    script = f'{SURROUNDINGS[name]}\nexec "$@"'
    return subprocess.run(
        ["sh", "-c", script, "sh", *command],
        env=env, cwd=place, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def _trouble(name: str, done: subprocess.CompletedProcess[str]) -> str:
    """Return what is wrong with a result, "" for nothing."""
    if name in SILENT and "gpuhook" not in done.stderr and done.returncode not in (0, 1, 2):
        return ""  # the shell or the interpreter did not start
    if done.returncode not in (0, 1, 2):
        return "status"
    for word in ("Traceback", "Exception ignored", "GH1491"):
        if word in done.stderr:
            return word
    if done.returncode == 1 and done.stderr and "GH" not in done.stderr + done.stdout:
        return "no code"
    return ""
