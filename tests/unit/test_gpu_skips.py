# SPDX-License-Identifier: Apache-2.0
"""The reasons for which tests on a real GPU are skipped."""

from __future__ import annotations

import pytest

from tests.gpu.memory_call import CGROUP_V1, TOO_OLD, falls_short, reason_to_skip
from tests.simulated import build


@pytest.mark.parametrize(
    ("without", "version", "reason"),
    [
        ("", "v2", None),
        ("", "v1", CGROUP_V1),
        ("MEMORY_LIMITS", "v2", TOO_OLD),
        ("MEMORY_LIMITS", "v1", TOO_OLD),
    ],
)
def test_reason_to_skip(without: str, version: str, reason: str | None) -> None:
    """A driver from before CUDA 13.4 is called too old, with the name of the missing call."""
    assert reason_to_skip(str(build.nvml_stub(without=without)), version) == reason
    assert "nvmlDeviceSetMemoryLimits_v1" in TOO_OLD


@pytest.mark.parametrize(
    ("held", "status", "words"),
    [
        (3000, "2", ""),
        (3072, "2", ""),
        (15000, "2", "allocated 15000 MiB until the card's end"),
        (3000, "719", "allocated 3000 MiB until CUDA's error 719"),
    ],
)
def test_limit_that_is_not_enforced_is_a_finding(held: int, status: str, words: str) -> None:
    """A limit that was read back and not enforced is distinguished from an enforced one."""
    said = falls_short("dmem", 3072, held, status)
    assert words in said
    assert bool(said) == bool(words)
    assert not said or "FINDING" in said
