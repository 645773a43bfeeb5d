# SPDX-License-Identifier: Apache-2.0
"""The demo's output: headings, paragraphs, commands, tables with ticks; colour on a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

TICK, CROSS = "✓", "✗"


class Page:
    """Standard output; on a terminal, with pauses for the reader."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._colour = self._live and "NO_COLOR" not in os.environ

    def heading(self, text: str) -> None:
        """Print the title of an act."""
        self._print("\n" + self._in("1;36", text) + "\n" + self._in("36", "─" * len(text)), 0.6)

    def say(self, text: str) -> None:
        """Print a paragraph."""
        self._print(text, 0.4)

    def command(self, text: str) -> None:
        """Print a command that the demo runs, or that the reader can run."""
        self._print(self._in("1", f"  $ {text}"), 0.3)

    def output(self, text: str) -> None:
        """Print the output of a command."""
        self._print("".join(f"    {line}\n" for line in text.splitlines()).rstrip("\n"), 0.3)

    def ticks(
        self, title: str, integrations: Sequence[str], rows: Sequence[tuple[str, list[str]]]
    ) -> None:
        """Print a table with a line for each question and a column for each integration."""
        first = max(len(title), *(len(name) for name, _ in rows))
        widths = [
            max(len(integration), *(len(answers[i]) for _, answers in rows))
            for i, integration in enumerate(integrations)
        ]
        head = [
            title.ljust(first),
            *(integration.ljust(w) for integration, w in zip(integrations, widths, strict=True)),
        ]
        self._print("  " + self._in("1", "   ".join(head)), 0.2)
        for name, answers in rows:
            cells = [
                self._painted(answer.ljust(width))
                for answer, width in zip(answers, widths, strict=True)
            ]
            self._print("  " + "   ".join([name.ljust(first), *cells]), 0.1)

    def expectations(self, rows: Sequence[tuple[str, bool]]) -> bool:
        """Print which expectations were met; returns whether all were."""
        self.say("")
        self.ticks("expected", ["seen"], [(name, [TICK if kept else CROSS]) for name, kept in rows])
        return all(kept for _, kept in rows)

    def _painted(self, cell: str) -> str:
        if cell.startswith(TICK):
            return self._in("32", cell)
        return self._in("31", cell) if cell.startswith(CROSS) else cell

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour else text

    def _print(self, text: str, pause: float) -> None:
        print(text, flush=True)
        if self._live:
            time.sleep(pause)
