# SPDX-License-Identifier: Apache-2.0
"""docs/reference/compatibility.md: each feature of the toolkit has a row, and each row a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
PAGE = (TESTS.parent / "docs" / "reference" / "compatibility.md").read_text("utf-8")
ROW = re.compile(r"^\| (\d+b?)(?: to (\d+))? \|(.*)\|$", re.MULTILINE)
TEST = re.compile(r"`([a-z0-9_/]+\.py)?::(test_\w+)`")
# Features that gpuhook lacks, and those that no test can cover.
UNDRIVEN = {"88", "90", "95", "96"}


def _rows() -> dict[str, str]:
    """Return the text of each row by its number; a range is listed under each of its numbers."""
    found: dict[str, str] = {}
    for first, last, text in ROW.findall(PAGE):
        numbers = [first] if not last else [str(n) for n in range(int(first), int(last) + 1)]
        for number in numbers:
            assert number not in found, number
            found[number] = text
    return found


ROWS = _rows()


def test_every_feature_has_its_row() -> None:
    assert set(ROWS) == {*map(str, range(1, 101)), "99b"}


@pytest.mark.parametrize("number", [number for number in ROWS if number not in UNDRIVEN])
def test_row_names_existing_tests(number: str) -> None:
    """A row names test functions of this checkout; `::` repeats the file."""
    tests = TEST.findall(ROWS[number].rpartition("|")[2])
    assert tests
    file = ""
    for named, function in tests:
        file = named or file
        tree = ast.parse((TESTS / file).read_text("utf-8"))
        assert function in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}


@pytest.mark.parametrize("number", sorted(UNDRIVEN))
def test_a_row_without_a_test_names_none(number: str) -> None:
    assert not TEST.findall(ROWS[number])
