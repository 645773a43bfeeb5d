# SPDX-License-Identifier: Apache-2.0
"""The tests on a real GPU say plainly why they do not run."""

from __future__ import annotations

import pytest

from tests.gpu.memory_call import CGROUP_V1, TOO_OLD, reason_to_skip
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
def test_the_reason_to_skip(without: str, version: str, reason: str | None) -> None:
    """A driver from before CUDA 13.4 is called too old, by the name of the call that it lacks."""
    assert reason_to_skip(str(build.nvml_stub(without=without)), version) == reason
    assert "nvmlDeviceSetMemoryLimits_v1" in TOO_OLD
