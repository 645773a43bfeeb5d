# SPDX-License-Identifier: Apache-2.0
"""Every `gpuhook ...` and every page that a message names exists: hints have no dead ends."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuhook.cli import COMMANDS
from gpuhook.errors import catalogue
from gpuhook.errors.messages import TEXTS
from tests.unit.docs.test_documented_commands import calls, trouble

ROOT = Path(__file__).parents[3]
SPAN = re.compile(
    r"`((?:sudo )?gpuhook [^`]*)`"
    rf"|(?<![`\w] )(?<![`\w])(gpuhook (?:{'|'.join(COMMANDS)})\b(?: -[\w-]+(?: \w+)?)*)"
)
PLACEHOLDER = re.compile(r"\{[^{}]*\}")


def spans(text: str) -> Iterator[str]:
    """Yield the commands in a message, with a placeholder's example instead of each fact."""
    for match in SPAN.finditer(PLACEHOLDER.sub("NAME", text)):
        yield match[1] or match[2]


def catalogue_cases() -> Iterator[tuple[str, str, bool]]:
    """Yield code, command line, and whether it is a complete example."""
    for code, one in catalogue.explanations().items():
        for text in (one.hint, one.cause, one.cure):
            yield from ((code, line, False) for line in spans(text))
        for line in one.example.replace("\\\n", " ").splitlines():
            if line.startswith("$ ") and "kubectl gpuhook" not in line:
                yield code, line.removeprefix("$ "), True


def source_cases() -> Iterator[tuple[str, str]]:
    """Yield module and command of each text in the package's code, such as the fixes of doctor."""
    for path in sorted((ROOT / "gpuhook").rglob("*.py")):
        code = path.read_text(encoding="utf-8")
        if path.name == "messages.py" or "gpuhook " not in code:
            continue
        tree = ast.parse(code)
        parts = {
            part
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            for part in node.values
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                text = "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "NAME"
                    for part in node.values
                )
            elif (
                isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts
            ):
                text = node.value
            else:
                continue
            for line in spans(text):
                yield str(path.relative_to(ROOT)), line


CATALOGUE = list(dict.fromkeys(catalogue_cases()))


@pytest.mark.parametrize(("code", "line", "is_example"), CATALOGUE)
def test_command_of_the_catalogue_exists(code: str, line: str, is_example: bool) -> None:
    for arguments in calls(" ".join(line.split())):
        assert trouble(arguments, is_example=is_example) == "", (code, line)


def test_each_command_of_a_message_exists() -> None:
    found = dict.fromkeys(source_cases())
    assert len(found) > 100
    wrong = [
        (module, line, said)
        for module, line in found
        for arguments in calls(" ".join(line.split()))
        if (said := trouble(arguments, is_example=False))
    ]
    assert wrong == []


def test_the_cases_are_found() -> None:
    assert len({code for code, _, _ in CATALOGUE}) > 100


def test_pages_are_urls_of_the_project() -> None:
    """Packages have no docs/: a message has the address of a page, and the page exists."""
    metadata = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'Documentation = "{catalogue.DOCS}' in metadata
    shown = [TEXTS]
    for one in catalogue.explanations().values():
        shown += [one.hint, one.cause, one.cure]
    pages = [page for text in shown for page in re.findall(r"(\S*)(\bdocs/[\w/-]+\.md)", text)]
    assert pages
    for before, page in pages:
        assert before.lstrip("(") == catalogue.DOCS, page
        assert (ROOT / page).is_file(), page
