# SPDX-License-Identifier: Apache-2.0
"""The isolation on AMD's devices: each enforcement has its own sentence, wherever it is shown."""

from __future__ import annotations

import pytest

from gpuhook.request.memory_request import BY_KERNEL
from gpuhook.usage import container_sharing
from gpuhook.vendors.amd.usage.amd_isolation import isolation_of
from gpuhook.vendors.usage.device_isolation import (
    BY_GUARD,
    BY_NOBODY,
    EXCLUSIVE,
    TIME_SLICING,
    SharedUse,
)

GPU = "0000:05:00.0"


@pytest.mark.parametrize("sharing", [EXCLUSIVE, TIME_SLICING])
@pytest.mark.parametrize(
    ("by", "words"),
    [(BY_KERNEL, "dmem"), (BY_GUARD, "monitored"), (BY_NOBODY, "not enforced (no controller)")],
)
def test_a_limit_has_its_enforcement(sharing: str, by: str, words: str) -> None:
    use = SharedUse(sharing, by, limit="3Gi", unenforced="no controller")
    assert isolation_of(use).memory.startswith("limited to 3Gi, ")
    assert words in isolation_of(use).memory


@pytest.mark.parametrize("profile", ["CPX/NPS4", "cpx_nps4"])
def test_memory_modes_keep_partitions_apart(profile: str) -> None:
    """Of a device of the driver, and of one that the plugin offers."""
    assert (
        "own channels" in isolation_of(SharedUse(EXCLUSIVE, is_part=True, profile=profile)).memory
    )
    shared = SharedUse(EXCLUSIVE, is_part=True, profile=profile.replace("4", "1"))
    assert "share the channels" in isolation_of(shared).memory


def test_a_container_has_the_sentences_of_its_vendor() -> None:
    """As `gpuhook ps` shows them: a limit by the kernel is enforced."""
    limit = {"gpu": GPU, "limit": 3 << 30, "by": BY_KERNEL, "trouble": ""}
    (one,) = container_sharing.sharing_of({}, [GPU], [], {GPU: 2}, [limit])
    assert "dmem" in one["isolation"]["memory"]
    assert "queues" in one["isolation"]["compute"]
