# SPDX-License-Identifier: Apache-2.0
"""The isolation of each kind of sharing: no sentence promises more than is enforced."""

from __future__ import annotations

import pytest

from gpuhook.request.memory_request import BY_DRIVER
from gpuhook.vendors.nvidia.gpu.sharing_isolation import isolation_of
from gpuhook.vendors.usage.device_isolation import (
    BY_GUARD,
    BY_HARDWARE,
    BY_MPS,
    BY_NOBODY,
    EXCLUSIVE,
    MEMORY_UNITS,
    MPS,
    TIME_SLICING,
    SharedUse,
)

SHARED = (TIME_SLICING, MPS, MEMORY_UNITS)
BOUNDS = (BY_DRIVER, BY_GUARD, BY_MPS, BY_NOBODY)


@pytest.mark.parametrize("sharing", SHARED)
@pytest.mark.parametrize("by", BOUNDS)
def test_every_kind_of_sharing_has_four_answers(sharing: str, by: str) -> None:
    """Each question has one short sentence."""
    answers = isolation_of(SharedUse(sharing, memory_by=by)).sentences()
    assert [question for question, _ in answers] == ["memory", "compute", "stability", "crash"]
    assert all(0 < len(answer) < 170 and "\n" not in answer for _, answer in answers)


@pytest.mark.parametrize("sharing", SHARED)
def test_unlimited_memory_is_not_called_limited(sharing: str) -> None:
    """Without a limit memory is first come, first served, and a share of it is not reserved."""
    told = isolation_of(SharedUse(sharing))
    assert told.memory.startswith("not limited")
    assert told.stability.endswith("the free rest")


@pytest.mark.parametrize("by", BOUNDS[:3])
def test_oversubscribed_limits_are_no_promise(by: str) -> None:
    """Such a limit is not said to be free for its container."""
    told = isolation_of(SharedUse(TIME_SLICING, memory_by=by, is_oversubscribed=True))
    assert "add up to more" in told.stability
    assert told != isolation_of(SharedUse(TIME_SLICING, memory_by=by))


def test_guard_acts_after_the_fact() -> None:
    """Watched memory is not said to be enforced."""
    told = isolation_of(SharedUse(TIME_SLICING, memory_by=BY_GUARD))
    assert "before that" in told.memory
    assert "may have taken it" in told.stability


def test_mig_instance_has_neighbours() -> None:
    """The hardware limits an instance, and does not separate its replicas."""
    alone = isolation_of(SharedUse(EXCLUSIVE, is_part=True, memory_by=BY_HARDWARE))
    assert "hardware" in alone.memory
    assert "no other container" not in alone.crash
    replicas = isolation_of(SharedUse(TIME_SLICING, is_part=True))
    assert replicas.memory.startswith("not limited")
    assert replicas.crash != isolation_of(SharedUse(TIME_SLICING)).crash


def test_exclusive_gpu_has_no_neighbours() -> None:
    """Whatever limits memory."""
    assert isolation_of(SharedUse(EXCLUSIVE, memory_by=BY_GUARD)) == isolation_of(
        SharedUse(EXCLUSIVE)
    )


@pytest.mark.parametrize("sharing", [EXCLUSIVE, *SHARED])
@pytest.mark.parametrize("by", BOUNDS)
@pytest.mark.parametrize("is_mig", [False, True])
def test_limit_is_shown_with_its_enforcement(sharing: str, by: str, *, is_mig: bool) -> None:
    """Also on an exclusive GPU, and if nothing enforces it."""
    told = isolation_of(
        SharedUse(
            sharing,
            is_part=is_mig,
            memory_by=by,
            limit="3Gi",
            unenforced="driver 580 is older than r615",
        )
    )
    assert told.memory.startswith("limited to 3Gi, ")
    assert "this container has the GPU's entire" not in told.memory
    nobody = "which is not enforced (driver 580 is older than r615)" in told.memory
    assert nobody is (by == BY_NOBODY)
    assert told.compute == isolation_of(SharedUse(sharing, is_part=is_mig, memory_by=by)).compute
