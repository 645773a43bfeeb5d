# SPDX-License-Identifier: Apache-2.0
"""The check of links and headings in Markdown files, and the pages that only link."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from language.links import dead_links, headings

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
ROW = re.compile(r"^\| ([^|]+) \| (.+) \|$", re.MULTILINE)


def test_tracked_pages_have_no_dead_link() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    pages = [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).exists()]
    assert {"README.md", "CONTRIBUTING.md", "faq.md"} <= {page.name for page in pages}
    assert [one for page in pages for one in dead_links(page, ROOT)] == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[a](missing.md)", "no such file"),
        ("![a](missing.svg)", "no such file"),
        ('<img src="missing.svg">', "no such file"),
        ("[a](#missing)", "no such heading"),
        ("[a](other.md#missing)", "no such heading"),
        ("[a](../other.md)", "outside of the checkout"),
        ("[a](other.md#b-c)", ""),
        ("[a](other.md#b-c-1)", ""),
        ("[a](other.md#not-this)", "no such heading"),
        ("[a](https://example.com/missing.md)", ""),
        ("```\n[a](missing.md)\n```", ""),
        ("`[a](missing.md)`", ""),
    ],
)
def test_dead_link_is_found(text: str, reason: str, tmp_path: Path) -> None:
    other = "# B `c`\n\n```\n# Not this\n```\n\n## B c\n"
    (tmp_path / "other.md").write_text(other, encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(f"# A\n\n{text}\n", encoding="utf-8")
    found = list(dead_links(page, tmp_path))
    assert [one.rpartition("(")[2].rstrip(")") for one in found] == ([reason] if reason else [])
    assert all(one.startswith("page.md:3: ") for one in found)


def test_anchors_of_headings() -> None:
    assert headings("# What is `x`, and [y](z.md)?\n## 알아 둘 것\n") == {
        "what-is-x-and-y",
        "알아-둘-것",
    }


def test_glossary_links_its_terms() -> None:
    """Terms are sorted and unique, and each has a page."""
    rows = ROW.findall((DOCS / "glossary.md").read_text(encoding="utf-8"))[1:]
    terms = [term for term, _ in rows]
    assert terms == sorted(set(terms), key=str.lower)
    assert len(terms) >= 20
    assert [term for term, meaning in rows if "](" not in meaning] == []


def test_questions_are_answered_with_a_link_or_a_command() -> None:
    text = (DOCS / "faq.md").read_text(encoding="utf-8")
    answers = [part for part in text.split("\n\n") if part.startswith("**")]
    assert len(answers) >= 20
    assert [one for one in answers if "](" not in one and "`" not in one] == []
