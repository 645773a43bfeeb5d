# SPDX-License-Identifier: Apache-2.0
"""Codes, their texts, their explanations and docs/errors.md say the same.

`python -m tests.unit.test_errors_explained` writes the page anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook import fault_texts
from gpuhook.fault_texts import explained
from gpuhook.fault_texts.explained import page
from tests.unit.test_errors import TEXTS

PAGE = Path(__file__).parents[2] / "docs/errors.md"
FOUND = {one.code: one for one in explained.all_of_them()}


def test_every_code_is_explained_and_no_other() -> None:
    assert sorted(FOUND) == sorted(TEXTS)
    assert list(FOUND) == sorted(FOUND)
    assert set(explained.BLOCKS) == set(fault_texts.BLOCKS.values())


@pytest.mark.parametrize("code", sorted(TEXTS))
def test_an_explanation_says_cause_cure_and_example(code: str) -> None:
    one = explained.explanation(code)
    for text in (one.cause, one.cure):
        assert text.endswith("."), text
        assert text == " ".join(text.split())
    assert one.example.strip()
    assert all(len(line) <= 100 for line in one.example.splitlines())


def test_the_page_is_made_of_these_texts() -> None:
    assert PAGE.read_text(encoding="utf-8") == page.text()


def test_a_code_that_is_none_has_no_explanation() -> None:
    with pytest.raises(KeyError):
        explained.explanation("GH1099")


if __name__ == "__main__":
    PAGE.write_text(page.text(), encoding="utf-8")
