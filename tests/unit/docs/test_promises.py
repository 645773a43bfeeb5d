# SPDX-License-Identifier: Apache-2.0
"""The generated promises and figures: each promise has a test, each figure its command."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from generate import figures, promises

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
    assert "## Live races\n" in text
    assert "(`tests/attacks/test_live_races.py`)" in text
    assert "| rounds | 10 |  |\n| leaks | 1 | 0 |\n\nMeasured by `make soak` on 2" in text


def test_figures_with_other_keys_are_refused(sources: Path) -> None:
    (sources / "live_races.json").write_text('[{"what": "rounds"}]', "utf-8")
    with pytest.raises(ValueError, match="must have the keys command, limit"):
        figures.files()
