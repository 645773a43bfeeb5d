# SPDX-License-Identifier: Apache-2.0
"""The engines of docs/support.md, of what tests report and of what was seen by hand."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from generate import support

from tests.engines.support_results import Row, row, versions, write

SEEN: dict[str, list[dict[str, Any]]] = {
    "engines": [
        {"engine": "CRI-O", "version": "1.37", "date": "2026-11-22", "what": "the wrapper"}
    ],
    "clusters": [],
    "gpus": [],
}
RUN = {
    "date": "2026-11-22",
    "about": "one node.",
    "scenarios": [{"scenario": "the chart", "result": "starts"}],
    "faults": [{"fault": "a label remained", "see": "[a page](x.md)"}],
    "fixes": "They ran there.",
    "left_out": "MIG",
}


def rows_of(*rows: Row) -> list[dict[str, str]]:
    return [asdict(one) for one in rows]


def test_rootless_engines_in_a_cell() -> None:
    """A user's engine has no separate cell: root's rows say that it was tested, too."""
    made = support.tables(
        rows_of(
            Row("podman", "5.8.6", "hooks.d", "crun 1.28"),
            Row("podman", "5.8.6", "hooks.d", "crun 1.28, rootless"),
            Row("podman", "5.8.6", "hooks.d", "runc 1.3.6, rootless"),
            Row("podman", "5.8.6", "names"),
            Row("podman", "5.8.6", "names", "rootless"),
        ),
        SEEN,
    )
    assert "| hooks.d | crun 1.28 (also rootless), runc 1.3.6 (rootless) |\n" in made
    assert "| names | tested (also rootless) |\n" in made


def test_table_of_an_engine() -> None:
    """A row for each integration, a column for each version, in their order."""
    made = support.tables(
        rows_of(
            Row("Docker", "28.5.2", "--gpus", "runc"),
            Row("Docker", "20.10.24", "--runtime nvidia", "crun"),
            Row("Docker", "28.5.2", "--runtime nvidia", "runc"),
            Row("Docker", "28.5.2", "--runtime nvidia", "crun"),
            Row("buildah", "1.28.2", "a|b"),
        ),
        SEEN,
    )
    _, _, sections = made.partition("### ")
    assert sections == (
        "Docker\n\n"
        "| tested | 20.10.24 | 28.5.2 |\n"
        "|---|---|---|\n"
        "| --gpus | not tested | runc |\n"
        "| --runtime nvidia | crun | crun, runc |\n"
        "\n### buildah\n\n"
        "| tested | 1.28.2 |\n"
        "|---|---|\n"
        "| a\\|b | tested |\n"
        "\n### CRI-O\n\n"
        "Seen on 2026-11-22, version 1.37: the wrapper.\n"
    )


@pytest.mark.parametrize(("key", "what"), [("clusters", "cluster"), ("gpus", "GPU")])
def test_section_of_what_people_have_run(key: str, what: str) -> None:
    made = support.tables([], {"engines": [], "clusters": [], "gpus": [], key: [RUN]})
    _, _, section = made.partition(f"## Seen on a real {what}\n\n")
    assert section.startswith("Run by hand on 2026-11-22: one node.\n")
    assert "\n|---|---|\n| the chart | starts |\n" in section
    assert "\n|---|---|\n| a label remained | [a page](x.md) |\n" in section
    assert "fixed since. Each fix has a test. They ran there.\n" in section
    assert section.endswith("\nNot tested: MIG.\n")


@pytest.mark.parametrize(
    ("rows", "seen", "source"),
    [
        ([{"engine": "Docker", "version": "1"}], SEEN, "tested.json"),
        ([], {**SEEN, "engines": [{"engine": "CRI-O"}]}, "seen.yaml, engines"),
        ([], {**SEEN, "clusters": [{**RUN, "more": 1}]}, "seen.yaml, clusters"),
        ([], {**SEEN, "gpus": [{"date": "2026-11-26"}]}, "seen.yaml, gpus"),
    ],
)
def test_other_keys_are_refused(rows: Any, seen: Any, source: str) -> None:
    with pytest.raises(ValueError, match=f"docs/support/{source}: .* must have the keys"):
        support.tables(rows, seen)


def test_results_of_a_run_are_a_source(tmp_path: Path) -> None:
    """What a test reports as text becomes a row of the file, sorted and once."""
    one, two = Row("podman", "5.4", "CDI", "crun"), Row("Docker", "28.5", "--gpus", "runc")
    path = tmp_path / "docs/tested.json"
    write([row(one.text()), row(two.text()), one], path)
    assert json.loads(path.read_text()) == rows_of(two, one)
    assert "| CDI | crun |" in support.tables(json.loads(path.read_text()), SEEN)


def test_versions_of_a_run_are_printed_in_order() -> None:
    rows = [Row("podman", one, "wrapper", with_) for one in ("4.3.1", "10.0") for with_ in "ab"]
    assert versions([*rows, Row("systemd", "257", "boot")]) == [
        "podman: 4.3.1, 10.0",
        "systemd: 257",
    ]
