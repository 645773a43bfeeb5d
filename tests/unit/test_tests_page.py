# SPDX-License-Identifier: Apache-2.0
"""tests/README.md: its example is a test that runs, and the names on it exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS / "README.md").read_text(encoding="utf-8")
MAKEFILE = (TESTS.parent / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
PAGES = [TESTS / "README.md", *(TESTS.parent / name for name in ("README.md", "README.ko.md"))]


def test_example_is_a_test() -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert (TESTS / "contract/test_example.py").read_text(encoding="utf-8").endswith(block)


def test_page_names_each_folder() -> None:
    folders = {path.parent.name for path in TESTS.glob("*/__init__.py")}
    assert set(re.findall(r"`([a-z_]+)/`", PAGE)) == folders


def test_page_names_each_marker() -> None:
    own = (TESTS.parent / "pyproject.toml").read_text(encoding="utf-8").split("\nmarkers = [")[1]
    names = set(re.findall(r'^  "([a-z_]+)', own.split("\n]")[0], re.MULTILINE))
    assert "every_case" in names
    assert names <= set(re.findall(r"[a-z_]+", PAGE))


def test_named_files_exist() -> None:
    named = re.findall(r"`(?:tests/)?((?:[a-z_]+/)+[a-z_]+\.py)", PAGE)
    assert len(named) > 5
    assert [name for name in named if not (TESTS / name).is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(TESTS.parent)))
def test_named_make_targets_exist(page: Path) -> None:
    named = set(re.findall(r"`(?:[a-z/_]+ )?make ([a-z-]+)[ `]", page.read_text(encoding="utf-8")))
    assert {"test", "test-all"} <= named
    assert named <= TARGETS
