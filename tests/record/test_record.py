# SPDX-License-Identifier: Apache-2.0
"""Compares what every command, the wrapper and the hooks do with the record: see __init__.py."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator

import pytest

from tests import depth
from tests.record import cases, surface
from tests.record.case import EXPECTED, Case
from tests.record.sandbox import Sandbox, sandbox

_CHUNK = 12


def _chunks() -> dict[str, list[Case]]:
    """Return the cases in chunks of one group and one scene: a worker makes a scene once."""
    chunks: dict[str, list[Case]] = {}
    by_scene: dict[tuple[str, str], list[Case]] = {}
    for case in cases.every():
        by_scene.setdefault((case.group, case.scene), []).append(case)
    for (group, scene), cases_of_scene in by_scene.items():
        for start in range(0, len(cases_of_scene), _CHUNK):
            chunks[f"{group}-{scene}-{start // _CHUNK}"] = cases_of_scene[start : start + _CHUNK]
    return chunks


CHUNKS = _chunks()


@pytest.fixture(scope="session")
def runner() -> Iterator[Sandbox]:
    """Yield the process that runs the cases."""
    if os.geteuid() != 0:
        pytest.skip("the record needs root: it makes namespaces and device nodes")
    with sandbox(surface.installed()) as made:
        yield made


@pytest.mark.parametrize("chunk", depth.every(3, CHUNKS))
def test_cases_match_the_record(chunk: str, runner: Sandbox) -> None:
    """The transcript of each case equals the recorded text, byte for byte.

    The everyday suite runs a third of them, `python -m tests.record` all.
    """
    changes: list[str] = []
    for case in CHUNKS[chunk]:
        recorded = case.expected.read_text(encoding="utf-8") if case.expected.exists() else ""
        now = runner.run(case.path)
        before, after = (text.splitlines(keepends=True) for text in (recorded, now))
        changes += difflib.unified_diff(before, after, case.path, "now", n=1)
    assert not changes, "".join(changes)


def test_each_recorded_text_has_a_case() -> None:
    known = {case.expected for case in cases.every()}
    assert known == set(EXPECTED.rglob("*.txt"))
