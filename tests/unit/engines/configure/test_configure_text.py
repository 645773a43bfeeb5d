# SPDX-License-Identifier: Apache-2.0
"""The sentences of `gpuhook configure` on containers that need gpuhook."""

from __future__ import annotations

import pytest

from gpuhook.engines.configure.configure_engine import EngineResult
from gpuhook.engines.report.configure_text import sentences
from gpuhook.engines.state.dependent_containers import Stored


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "1 container was created with it and needs it to restart: c0 ("),
        (2, "2 containers were created with it and need it to restart: c0, c1 ("),
    ],
)
def test_number_of_stored_containers(count: int, said: str) -> None:
    stored = tuple(
        Stored("docker", f"id{n}", f"c{n}", "config.json", "its runtime", is_running=False)
        for n in range(count)
    )
    lines = list(sentences(EngineResult("docker", (), (), stored=stored), "undo", is_dry=False))
    assert lines[-1].startswith(said)
