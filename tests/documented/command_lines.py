# SPDX-License-Identifier: Apache-2.0
"""The command lines of the documentation, with the output that a page shows below them.

A line is in a block `sh`, or after `$ ` in a block `console`. A line that ends in `\\` or `|`, and
a loop, continue on the next line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
# docs/reference/errors.md is generated; its examples are refused on purpose.
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("README*.md", "docs/**/*.md")
    for path in ROOT.glob(pattern)
    if path.name != "errors.md"
)
FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}\S.*\n)+")
CONTINUES = re.compile(r"(\\|\||&&)$")
# What a later line of its block needs of a line: the directory, or a variable.
SHELL_STATE = re.compile(r"cd |\w+=\S*$|for ")


@dataclass(frozen=True)
class CommandLine:
    """A command line: `state` are the lines above it that change the shell of its block."""

    page: str
    number: int
    text: str
    shown: tuple[str, ...] = ()
    state: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Return the line on one line, without its comment."""
        joined = re.sub(r"\s*\\?\n\s*", " ", self.text)
        return re.sub(r"\s+# .*$", "", joined).strip()

    @property
    def script(self) -> str:
        """Return the line for a shell, after those that it needs."""
        return "\n".join((*self.state, self.text))

    def __str__(self) -> str:
        return f"{self.page}:{self.number}: {self.words}"


@cache
def text_of(page: str) -> str:
    """Return the text of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def lines_of(page: str) -> Iterator[CommandLine]:
    """Yield the command lines of a page in their order."""
    yield from lines_in(text_of(page), page)


def all_lines() -> list[CommandLine]:
    """Return the command lines of all pages."""
    return [line for page in PAGES for line in lines_of(page)]


def lines_in(text: str, page: str) -> Iterator[CommandLine]:
    """Yield the command lines of the text of a page."""
    for block in FENCE.finditer(text):
        first = text[: block.start()].count("\n") + 2
        if block[1] == "console":
            yield from _console(page, first, dedent(block[2]).splitlines())
        elif block[1] == "sh":
            yield from _shell(page, first, dedent(block[2]).splitlines())


def other_blocks(page: str) -> Iterator[str]:
    """Yield the blocks of a page without a language, and the indented ones."""
    text = text_of(page)
    yield from (block[2] for block in FENCE.finditer(text) if not block[1])
    yield from INDENTED.findall(FENCE.sub("", text))


def yaml_files(page: str) -> dict[str, str]:
    """Return the YAML blocks of a page whose first line names their file: `# values.yaml`."""
    blocks = (dedent(block[2]) for block in FENCE.finditer(text_of(page)) if block[1] == "yaml")
    named = ((re.match(r"# ([\w-]+\.yaml)\b", block), block) for block in blocks)
    return {name[1]: block for name, block in reversed(list(named)) if name}


def _shell(page: str, number: int, lines: list[str]) -> Iterator[CommandLine]:
    state: list[str] = []
    while lines:
        count = next(n for n in range(1, len(lines) + 1) if _is_complete(lines[:n]))
        text = "\n".join(lines[:count])
        if text.strip() and not text.lstrip().startswith("#"):
            yield CommandLine(page, number, text, state=tuple(state))
            if SHELL_STATE.match(text):
                state.append(text)
        number, lines = number + count, lines[count:]


def _console(page: str, number: int, lines: list[str]) -> Iterator[CommandLine]:
    while lines:
        count = next(n for n in range(1, len(lines) + 1) if _is_complete(lines[:n]))
        end = next((n for n in range(count, len(lines)) if lines[n].startswith("$ ")), len(lines))
        assert lines[0].startswith("$ "), f"{page}:{number}: a block console begins with `$ `"
        shown = "\n".join(lines[count:end]).strip("\n").splitlines()
        yield CommandLine(page, number, "\n".join(lines[:count])[2:], tuple(shown))
        number, lines = number + end, lines[end:]


def _is_complete(lines: list[str]) -> bool:
    text = "\n".join(lines)
    is_open = len(re.findall(r"\bdo$", text, re.MULTILINE)) > text.count("done")
    return not CONTINUES.search(lines[-1].rstrip()) and not is_open
