# SPDX-License-Identifier: Apache-2.0
"""Run the lines of a page in order, and compare what they print with what the page shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.contract.runtimes import Result
from tests.documented.command_lines import CommandLine

# Runs a line as a script of bash.
Run = Callable[[str], Result]
VARIES = re.compile(r"\.\.\.|[\w:-]*\d[\w:.-]*")


@dataclass(frozen=True)
class Expected:
    """How the lines of a page are run.

    `replaces` has values for placeholders, which are regular expressions. The others are by a part
    of a line: `status` an exit status other than 0; `before` a script that runs before the first
    such line, or one for each of the first such lines; `around` a script that runs the line, as
    `{line}`; `differs` are lines whose output on the page is that of another node.
    """

    replaces: Mapping[str, str]
    status: Mapping[str, int] = field(default_factory=dict)
    before: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    around: Mapping[str, str] = field(default_factory=dict)
    differs: tuple[str, ...] = ()


def run_lines(lines: Iterable[CommandLine], run: Run, expected: Expected) -> None:
    """Run lines in their order; each must end with its status and print what its page shows."""
    before = {
        part: [scripts] if isinstance(scripts, str) else list(scripts)
        for part, scripts in expected.before.items()
    }
    for line in lines:
        for part, scripts in before.items():
            if part in line.words and scripts:
                script = scripts.pop(0)
                done = run(script)
                assert done.rc == 0, (script, done)
        script = replaced(line.script, expected.replaces)
        for part, around in expected.around.items():
            if part in line.words:
                script = around.replace("{line}", script)
        done = run(script)
        wanted = [rc for part, rc in expected.status.items() if part in line.words] or [0]
        assert done.rc == wanted[0], (str(line), done)
        if not any(part in line.words for part in expected.differs):
            missing = missing_lines(line.shown, done.stdout + done.stderr)
            assert not missing, (str(line), missing, done)


def replaced(script: str, replaces: Mapping[str, str]) -> str:
    """Return a line with values for its placeholders."""
    for pattern, value in replaces.items():
        script = re.sub(pattern, lambda _, value=value: value, script)  # type: ignore[misc]
    return script


def missing_lines(shown: Iterable[str], printed: str) -> list[str]:
    """Return the shown lines that a command has not printed, in their order.

    Numbers, ids and space vary; `...` is any text, or, on a line, any number of lines.
    """
    lines = [line.strip() for line in printed.splitlines()]
    missing = []
    for line in shown:
        if not line.strip(" ."):
            continue
        pattern = re.compile(_pattern(line.strip()))
        place = next((n for n, one in enumerate(lines) if pattern.fullmatch(one)), None)
        if place is None:
            missing.append(line)
        else:
            lines = lines[place + 1 :]
    return missing


def _pattern(line: str) -> str:
    words = []
    for word in line.split():
        parts = re.split(f"({VARIES.pattern})", word)
        words.append(
            "".join(
                ".*" if part == "..." else r"[\w:.-]*" if n % 2 else re.escape(part)
                for n, part in enumerate(parts)
            )
        )
    return r"\s+".join(words)
