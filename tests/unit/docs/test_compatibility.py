# SPDX-License-Identifier: Apache-2.0
"""The comparisons with the vendors' tools: each feature has a row, and each row a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
DOCS = TESTS.parent / "docs"
NVIDIA, AMD = "reference/compatibility.md", "compatibility-amd.md"
DRA, NRI = "dra.md", "nri.md"
ROW = re.compile(r"^\| (\d+b?)(?: to (\d+))? \|(.*)\|$", re.MULTILINE)
TEST = re.compile(r"`([a-z0-9_/]+\.py)?::(test_\w+)`")
NUMBERS = {
    NVIDIA: {*map(str, range(1, 101)), "99b"},
    AMD: {*map(str, range(1, 56))},
    DRA: {*map(str, range(1, 34))},
    NRI: {*map(str, range(1, 32))},
}
# Features that gpuhook lacks, and those that no test can cover.
UNDRIVEN = {
    NVIDIA: {"90", "95", "96"},
    AMD: set(),
    DRA: {"29", "30"},
    NRI: {"14"},
}


def _rows(page: str) -> dict[str, str]:
    """Return the text of each row by its number; a range is listed under each of its numbers."""
    found: dict[str, str] = {}
    for first, last, text in ROW.findall((DOCS / page).read_text("utf-8")):
        numbers = [first] if not last else [str(n) for n in range(int(first), int(last) + 1)]
        for number in numbers:
            assert number not in found, number
            found[number] = text
    return found


ROWS = {page: _rows(page) for page in NUMBERS}
DRIVEN = [(page, row) for page, rows in ROWS.items() for row in rows if row not in UNDRIVEN[page]]


@pytest.mark.parametrize("page", NUMBERS)
def test_every_feature_has_its_row(page: str) -> None:
    assert set(ROWS[page]) == NUMBERS[page]


@pytest.mark.parametrize(("page", "number"), DRIVEN)
def test_row_names_existing_tests(page: str, number: str) -> None:
    """A row names test functions of this checkout; `::` repeats the file."""
    tests = TEST.findall(ROWS[page][number].rpartition("|")[2])
    assert tests
    file = ""
    for named, function in tests:
        file = named or file
        tree = ast.parse((TESTS / file).read_text("utf-8"))
        assert function in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}


@pytest.mark.parametrize("page", NUMBERS)
def test_a_row_without_a_test_names_none(page: str) -> None:
    assert not any(TEST.findall(ROWS[page][number]) for number in UNDRIVEN[page])
