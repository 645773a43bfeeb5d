# SPDX-License-Identifier: Apache-2.0
"""The promises of the simulated driver, for any amounts in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.simulated.memory_accounts import Held, fits
from tests.simulated.stub_limits import NO_LIMIT, Kept

CAPACITY = 100
CGROUPS = 4  # inodes 1 to 4; who is in the last has no limit


@st.composite
def limits_of_three(draw: st.DrawFn) -> list[Kept]:
    """Return limits of three cgroups whose soft limits the device can keep."""
    found, left = [], CAPACITY
    for inode in range(1, CGROUPS):
        soft = draw(st.integers(0, left))
        left -= soft
        hard = draw(st.one_of(st.integers(max(soft, 1), CAPACITY), st.just(NO_LIMIT)))
        found.append(Kept("GPU-0", f"/{inode}", inode, hard, soft))
    return found


asking = st.lists(st.tuples(st.integers(1, CGROUPS), st.integers(1, CAPACITY)), max_size=30)


@given(limits_of_three(), asking)
def test_promises(limits: list[Kept], asked: list[tuple[int, int]]) -> None:
    """The card and hard limits are never exceeded; no process is refused within its soft limit."""
    held: list[Held] = []
    for pid, (cgroup, size) in enumerate(asked):
        own = next((limit for limit in limits if limit.inode == cgroup), None)
        before = sum(one.size for one in held if one.cgroups == (cgroup,))
        given_ = fits(CAPACITY, limits, held, size, [cgroup])
        if own and before + size <= own.soft:
            assert given_
        if given_:
            held.append(Held(pid, "GPU-0", size, (cgroup,)))
            assert sum(one.size for one in held) <= CAPACITY
            assert own is None or before + size <= own.hard


@given(limits_of_three())
def test_what_is_promised_to_nobody_is_to_be_had(limits: list[Kept]) -> None:
    """A process without a limit gets all but the soft limits, and not a byte more."""
    free = CAPACITY - sum(limit.soft for limit in limits)
    assert not fits(CAPACITY, limits, [], free + 1, [CGROUPS])
    assert free == 0 or fits(CAPACITY, limits, [], free, [CGROUPS])
