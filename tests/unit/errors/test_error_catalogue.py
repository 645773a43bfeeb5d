# SPDX-License-Identifier: Apache-2.0
"""The catalogue of errors, the retired codes, and the files that are generated from them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from generate import __main__ as generate
from generate import errors as generator

from gpuhook.errors import catalogue

CODES = set(catalogue.explanations())
FILES = sorted(catalogue.AREAS.glob("*.md"))
SECTION = """\
# Area

## GH1003

    kind: RequestError
    sentence: {name}: malformed
    hint: write it

Cause: A long
text.

Cure: Another.

```
an example

of three lines
```
"""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_codes_are_unique_and_sorted(path: Path) -> None:
    """The codes of a file begin with the same two digits and are sorted."""
    codes = [one.code for one in catalogue.read(path)]
    assert all(re.fullmatch(r"GH\d{4}", code) for code in codes)
    assert codes == sorted(set(codes))
    assert len({code[:4] for code in codes}) == 1


def test_an_area_is_one_file() -> None:
    blocks = [next(catalogue.read(path)).code[:4] for path in FILES]
    assert sorted(blocks) == sorted(set(blocks))


@pytest.mark.parametrize("code", sorted(CODES))
def test_an_explanation_has_kind_cause_and_example(code: str) -> None:
    """The cure is skipped if the hint has it already."""
    one = catalogue.explanations()[code]
    assert one.kind in catalogue.KINDS
    assert one.cause.endswith(".")
    assert not one.cure or one.cure.endswith(".")
    assert one.cure.casefold().rstrip(".") != one.hint.casefold()
    assert one.example.strip()
    assert all(len(line) <= 100 for line in one.example.splitlines())


def test_section_has_all_its_parts(tmp_path: Path) -> None:
    path = tmp_path / "area.md"
    path.write_text(SECTION, encoding="utf-8")
    assert list(catalogue.read(path)) == [
        catalogue.Explanation(
            code="GH1003",
            block="Area",
            kind="RequestError",
            message="{name}: malformed",
            hint="write it",
            cause="A long text.",
            cure="Another.",
            example="an example\n\nof three lines",
        )
    ]


def test_section_without_a_cure(tmp_path: Path) -> None:
    path = tmp_path / "area.md"
    path.write_text(SECTION.replace("Cure: Another.\n\n", ""), encoding="utf-8")
    (one,) = catalogue.read(path)
    assert (one.cause, one.cure) == ("A long text.", "")
    assert one.example == "an example\n\nof three lines"


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        ("sentence: ", "message: "),
        ("    hint: write it\n", ""),
        ("Cause: ", ""),
        ("Cure: ", ""),
        ("Cure: Another.\n", "Cure: Another.\n\nCure: A third.\n"),
        ("```\n", ""),
        ("of three lines\n```\n", "```\n\nmore\n"),
    ],
)
def test_malformed_section_is_reported(part: str, instead: str, tmp_path: Path) -> None:
    path = tmp_path / "area.md"
    path.write_text(SECTION.replace(part, instead), encoding="utf-8")
    with pytest.raises(ValueError, match=r"area\.md: GH1003: "):
        list(catalogue.read(path))


def test_a_retired_code_is_not_used_again() -> None:
    retired = catalogue.retired_codes()
    assert retired
    assert sorted(set(retired) & CODES) == []
    assert list(retired) == sorted(retired)
    assert {one.replacement for one in retired.values()} - {""} <= CODES


def test_every_row_of_the_retired_codes_is_read() -> None:
    rows = catalogue.RETIRED.read_text(encoding="utf-8").partition("|---|---|---|\n")[2]
    assert len(catalogue.retired_codes()) == len(rows.splitlines())


def test_generated_files_are_current() -> None:
    """If this fails, run make generate."""
    assert sorted(generate.outdated(generate.CHECKOUT)) == []


def test_outdated_files_are_found(tmp_path: Path) -> None:
    """A missing or outdated file gets its new text."""
    new = generator.files()
    for path, text in {**generate.outdated(tmp_path), **new}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    assert generate.outdated(tmp_path) == {}
    (tmp_path / "docs/reference/errors.md").write_text("# Errors\n", encoding="utf-8")
    (tmp_path / "gpuhook/errors/messages.py").unlink()
    assert generate.outdated(tmp_path) == new


def test_check_exits_with_1_for_outdated_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It lists the files and the command, and writes nothing; without --check it writes them."""
    every = generate.outdated(tmp_path)
    assert set(generator.files()) < set(every)
    for path in every:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(generate, "CHECKOUT", tmp_path)
    monkeypatch.setattr("sys.argv", ["generate", "--check"])
    with pytest.raises(SystemExit, match=r"^run make generate: docs/[\w./-]+, .* differ from"):
        generate.main()
    assert not list(tmp_path.rglob("*.*"))
    monkeypatch.setattr("sys.argv", ["generate"])
    generate.main()
    assert sorted(capsys.readouterr().out.split()) == sorted(every)
    assert generate.outdated(tmp_path) == {}
