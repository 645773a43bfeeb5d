# SPDX-License-Identifier: Apache-2.0
"""The generated promises and figures: each promise has a test, each figure its command."""

from __future__ import annotations

import json
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
    """Return a directory of figures in place of that of the documentation."""
    monkeypatch.setattr(figures, "SOURCES", tmp_path)
    for path in figures.names():
        (tmp_path / f"{path}.json").write_text("[]", "utf-8")
    return tmp_path


def test_figures_have_their_command_and_day(sources: Path) -> None:
    path = sources / "bench_plugin.json"
    write(path, "start", "3 ms", "<= 2 ms", "make bench")
    write(path, "memory", "5 MB", "", "make bench")
    write(path, "start", "1 ms", "<= 2 ms", "make bench")
    (page,) = figures.files().values()
    assert (
        "| start | 1 ms | <= 2 ms |\n| memory | 5 MB |  |\n\nMeasured by `make bench` on 2" in page
    )


def test_figures_that_no_page_has_are_refused(sources: Path) -> None:
    (sources / "other.json").write_text(json.dumps([]), "utf-8")
    with pytest.raises(ValueError, match="lacks a section for \\['other'\\]"):
        figures.files()
