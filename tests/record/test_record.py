# SPDX-License-Identifier: Apache-2.0
"""What every command, the wrapper and the hooks do is what was recorded: see __init__.py."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator

import pytest

from tests.record import cases, surface
from tests.record.case import EXPECTED, Case
from tests.record.sandbox import Sandbox, sandbox

_CHUNK = 12


def _chunks() -> dict[str, list[Case]]:
    """Return the cases in chunks of one group and one scene: a scene is made once per worker."""
    found: dict[str, list[Case]] = {}
    by_scene: dict[tuple[str, str], list[Case]] = {}
    for case in cases.every():
        by_scene.setdefault((case.group, case.scene), []).append(case)
    for (group, scene), held in by_scene.items():
        for start in range(0, len(held), _CHUNK):
            found[f"{group}-{scene}-{start // _CHUNK}"] = held[start : start + _CHUNK]
    return found


CHUNKS = _chunks()


@pytest.fixture(scope="session")
def runner() -> Iterator[Sandbox]:
    """Give the process that runs the cases."""
    if os.geteuid() != 0:
        pytest.skip("the record needs root: it makes namespaces and device nodes")
    with sandbox(surface.installed()) as made:
        yield made


@pytest.mark.parametrize("chunk", CHUNKS)
def test_as_recorded(chunk: str, runner: Sandbox) -> None:
    """What happens now is what was recorded, byte for byte."""
    changes: list[str] = []
    for case in CHUNKS[chunk]:
        recorded = case.expected.read_text(encoding="utf-8") if case.expected.exists() else ""
        now = runner.run(case.path)
        before, after = (text.splitlines(keepends=True) for text in (recorded, now))
        changes += difflib.unified_diff(before, after, case.path, "now", n=1)
    assert not changes, "".join(changes)


def test_nothing_else_is_recorded() -> None:
    """Each recorded text is that of a case."""
    known = {case.expected for case in cases.every()}
    assert known == set(EXPECTED.rglob("*.txt"))
