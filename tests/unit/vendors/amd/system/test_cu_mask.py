# SPDX-License-Identifier: Apache-2.0
"""HSA_CU_MASK: the measured masks of amd.md's section on sharing, and what must not be emitted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from gpuhook.vendors.amd.system import cu_mask


@pytest.mark.parametrize(
    ("gfx", "xccs", "engines", "group"),
    [
        ("gfx942", 8, 32, 8),
        ("gfx942", 1, None, 1),  # a partition in CPX mode
        ("gfx90a", None, 8, None),  # a kernel that does not report XCCs
        ("gfx1100", None, 6, 12),
        ("gfx1201", 1, 4, 8),
        ("gfx1100", None, None, None),
        ("gfx906", 1, 4, None),  # GCN: never measured
        (None, 8, 8, None),
    ],
)
def test_group(gfx: str | None, xccs: int | None, engines: int | None, group: int | None) -> None:
    assert cu_mask.cu_group(gfx, xccs, engines) == group


@pytest.mark.parametrize(
    ("cus", "group", "share", "shares", "text"),
    [
        (304, 8, 0, 20, "0:0-7"),  # 5 %
        (304, 8, 1, 20, "0:8-15"),
        (304, 8, 0, 2, "0:0-151"),
        (304, 8, 1, 2, "0:152-303"),
        (60, 6, 0, 4, "0:0-11"),  # 25 % of three shader engines: 7 WGPs, rounded down to 6
        (304, 8, 0, 39, ""),  # less than a CU of each XCC: the other XCCs would run unmasked
        (304, 8, 2, 2, ""),  # there is no such part
    ],
)
def test_part(cus: int, group: int, share: int, shares: int, text: str) -> None:
    run = cu_mask.cu_run(cus, group, share, shares)
    assert cu_mask.mask([(0, [run] if run else [])]) == text


@given(some.integers(1, 400), some.integers(1, 16), some.integers(1, 64))
def test_parts_are_disjoint_multiples_within_the_gpu(cus: int, group: int, shares: int) -> None:
    """No part has an orphan CU or a bit past the CU count, and no two parts overlap."""
    runs = [cu_mask.cu_run(cus, group, share, shares) for share in range(shares)]
    known = [run for run in runs if run is not None]
    assert len(known) in (0, shares)
    assert all(len(run) % group == 0 and run.start % group == 0 for run in known)
    bits = [bit for run in known for bit in run]
    assert len(bits) == len(set(bits))
    assert max(bits, default=0) < cus


def test_several_gpus_and_parts() -> None:
    """A GPU without a part is not in the list: it is not masked."""
    runs = [range(16, 24), range(8)]
    assert cu_mask.mask([(0, runs), (1, []), (2, [range(8)])]) == "0:0-7,16-23;2:0-7"
    assert cu_mask.mask([]) == ""
