# SPDX-License-Identifier: Apache-2.0
"""The memory limits of the simulated driver, for any requests in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.simulated.memory_accounts import Held, fits
from tests.simulated.stub_limits import NO_LIMIT, Kept

CAPACITY = 100
CGROUPS = 4  # inodes 1 to 4; the last cgroup has no limit


@st.composite
def limits_of_three(draw: st.DrawFn) -> list[Kept]:
    """Return limits of three cgroups; the sum of the soft limits fits on the device."""
    found, left = [], CAPACITY
    for inode in range(1, CGROUPS):
        soft = draw(st.integers(0, left))
        left -= soft
        hard = draw(st.one_of(st.integers(max(soft, 1), CAPACITY), st.just(NO_LIMIT)))
        found.append(Kept("GPU-0", f"/{inode}", inode, hard, soft))
    return found


requests_of_cgroups = st.lists(
    st.tuples(st.integers(1, CGROUPS), st.integers(1, CAPACITY)), max_size=30
)


@given(limits_of_three(), requests_of_cgroups)
def test_soft_limits_are_guaranteed_and_hard_limits_enforced(
    limits: list[Kept], requests: list[tuple[int, int]]
) -> None:
    """The memory of the device is never exceeded."""
    held: list[Held] = []
    for pid, (cgroup, size) in enumerate(requests):
        own = next((limit for limit in limits if limit.inode == cgroup), None)
        before = sum(one.size for one in held if one.cgroups == (cgroup,))
        is_granted = fits(CAPACITY, limits, held, size, [cgroup])
        if own and before + size <= own.soft:
            assert is_granted
        if is_granted:
            held.append(Held(pid, "GPU-0", size, (cgroup,)))
            assert sum(one.size for one in held) <= CAPACITY
            assert own is None or before + size <= own.hard


@given(limits_of_three())
def test_process_without_a_limit_gets_all_unreserved_memory(limits: list[Kept]) -> None:
    free = CAPACITY - sum(limit.soft for limit in limits)
    assert not fits(CAPACITY, limits, [], free + 1, [CGROUPS])
    assert free == 0 or fits(CAPACITY, limits, [], free, [CGROUPS])
