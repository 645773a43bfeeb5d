# SPDX-License-Identifier: Apache-2.0
"""Run the lines of a page in order, and compare what they print with what the page shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tests.contract.runtimes import Result
from tests.documented.command_lines import CommandLine

# Runs a line as a script of bash.
Run = Callable[[str], Result]
VARIES = re.compile(r"\.\.\.|[\w:-]*\d[\w:.-]*")


@dataclass(frozen=True)
class Expected:
    """How the lines of a page are run.

    `replaces` are regular expressions of placeholders; `status` has lines with another exit status
    than 0, by a part of their words; `prepare` has what is done before such a line; `differs` has
    lines whose output is an example of another node.
    """

    replaces: Mapping[str, str]
    status: Mapping[str, int] = field(default_factory=dict)
    prepare: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    differs: tuple[str, ...] = ()


def run_lines(lines: Iterable[CommandLine], run: Run, expected: Expected) -> None:
    """Run lines in their order; each must end with its status and print what its page shows."""
    for line in lines:
        for part, action in expected.prepare.items():
            if part in line.words:
                action()
        done = run(replaced(line.script, expected.replaces))
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
