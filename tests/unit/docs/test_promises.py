# SPDX-License-Identifier: Apache-2.0
"""The generated promises and figures: each promise has a test, each figure its command."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from generate import figure_tables, figures, promises

from tests.figures import write


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ([], "'links' has no test"),
        (["contract/test_none.py"], "there is no test contract/test_none.py"),
        (["contract/test_hostile.py::test_none"], "there is no test"),
    ],
)
def test_promise_without_a_test_is_refused(
    tests: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = yaml.safe_load(promises.SOURCE.read_text("utf-8"))
    source["measures"].append({"threat": "links", "measure": "none", "tests": tests})
    changed = tmp_path / "promises.yaml"
    changed.write_text(yaml.safe_dump(source), "utf-8")
    monkeypatch.setattr(promises, "SOURCE", changed)
    with pytest.raises(ValueError, match=message):
        promises.files()


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the documentation's figures."""
    made = tmp_path / "figures"
    shutil.copytree(figures.SOURCES, made)
    monkeypatch.setattr(figures, "SOURCES", made)
    return made


def test_figures_have_their_command_and_day(sources: Path) -> None:
    """A figure that is measured again replaces the previous one; the latest day is named."""
    path = sources / "live_races.json"
    path.unlink()
    write(path, "rounds", "3", "", "make soak")
    write(path, "leaks", "1", "0", "make soak")
    write(path, "rounds", "10", "", "make soak")
    text = figures.files()[figures.LONG_TESTS]
    assert "## Races in a running container\n" in text
    assert "(`tests/attacks/test_live_races.py`)" in text
    assert "| rounds | 10 |  |\n| leaks | 1 | 0 |\n\nMeasured by `make soak` on 2" in text


def test_figures_with_other_keys_are_refused(sources: Path) -> None:
    (sources / "live_races.json").write_text('[{"what": "rounds"}]', "utf-8")
    with pytest.raises(ValueError, match="must have the keys command, limit"):
        figures.files()


def _table(*rows: tuple[str, str, str]) -> list[str]:
    keys = ("what", "value", "limit")
    return figure_tables.lines([dict(zip(keys, row, strict=True)) for row in rows])


def test_table_has_a_column_for_each_number() -> None:
    """What all rows have in common is written once; rows are sorted."""
    assert _table(
        ("inputs: b", "12345 inputs, 7/s, 1 findings", "2 s"),
        ("inputs: a", "1,234 inputs, 70/s, 0 findings", "2 s"),
    ) == [
        "| inputs | inputs | per second | findings |",
        "|---|---|---|---|",
        "| a | 1,234 | 70 | 0 |",
        "| b | 12,345 | 7 | 1 |",
        "",
        "The limit of each is 2 s.",
    ]
    assert _table(
        ("races of a root's leaves: rounds", "5 (4 done)", ""),
        ("races of a root's nodes: rounds", "6 (6 done)", ""),
    ) == [
        "| races of a root's ... | rounds | done |",
        "|---|---|---|",
        "| leaves | 5 | 4 |",
        "| nodes | 6 | 6 |",
    ]


def test_table_has_a_column_for_each_case() -> None:
    rows = [(f"{what}, {case}", "1 to 2", "3") for what in ("a", "b") for case in ("x", "y, z")]
    assert _table(*rows) == [
        "| what was measured | x | y, z |",
        "|---|---|---|",
        "| a | 1 to 2 (limit 3) | 1 to 2 (limit 3) |",
        "| b | 1 to 2 (limit 3) | 1 to 2 (limit 3) |",
    ]


def test_table_of_different_figures() -> None:
    """Their words and their order remain."""
    assert _table(("b", "1883.6 ms", ""), ("a", "1 to 2", "5000")) == [
        "| what was measured | figure | limit |",
        "|---|---|---|",
        "| b | 1,883.6 ms |  |",
        "| a | 1 to 2 | 5,000 |",
    ]
