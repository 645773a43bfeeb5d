# SPDX-License-Identifier: Apache-2.0
"""The plugin's counters and histograms."""

from __future__ import annotations

import itertools

import pytest

from gpuhook.device_plugin.kubelet.observer import Observer
from gpuhook.device_plugin.metrics.counters import BUCKETS, MAX_KEYS, OTHER, Counters, Durations


@pytest.mark.parametrize(
    ("seconds", "bound"),
    [(0.0, 0.0005), (-1.0, 0.0005), (0.0005, 0.0005), (0.00051, 0.001), (9.0, 10.0)],
)
def test_duration_is_counted_in_the_bucket_of_its_bound(seconds: float, bound: float) -> None:
    durations = Durations()
    durations.add(seconds)
    held = [name for name, count in durations.cumulative() if count]
    assert held == [*map(str, BUCKETS[BUCKETS.index(bound) :]), "+Inf"]


def test_last_bucket_is_unbounded() -> None:
    durations = Durations()
    durations.add(1e6)
    assert [name for name, count in durations.cumulative() if count] == ["+Inf"]
    assert durations.total == 1e6


def test_snapshot_has_all_counts() -> None:
    """Containers are counted and not calls; refusals are counted by method, too."""
    seen = Counters()
    events = Observer(seen)
    events.allocated("nvidia.com/gpu", [["a"], ["b", "c"]], 0.001)
    before = seen.snapshot()
    events.refused("nvidia.com/gpu", "Allocate", "why", 0.001)
    events.refused("nvidia.com/gpu", "PreStartContainer", "why", 0.001)
    events.refused("nvidia.com/gpu", "GetPreferredAllocation", "why", 0.001)
    seen.xid("GPU-0", 79)
    seen.xid("GPU-0", 79)
    events.streams("nvidia.com/gpu", 2)
    after = seen.snapshot()
    gpu = "nvidia.com/gpu"
    assert before.counters["allocations"] == {(gpu, "allocated"): 2}
    assert sum(before.durations["allocate"][gpu].counts) == 1
    assert after.counters["allocations"] == {(gpu, "allocated"): 2, (gpu, "refused"): 1}
    assert after.counters["starts"] == {(gpu, "refused"): 1}
    assert after.counters["refusals"] == {
        (gpu, "Allocate"): 1,
        (gpu, "PreStartContainer"): 1,
        (gpu, "GetPreferredAllocation"): 1,
    }
    assert after.counters["xid"] == {("GPU-0", "79"): 2}
    assert (before.streams, after.streams) == ({}, {gpu: 2})


def test_number_of_keys_is_bounded() -> None:
    """The sums remain correct."""
    seen = Counters()
    events = Observer(seen)
    for number in range(MAX_KEYS + 500):
        seen.xid("GPU-0", number)
        events.preferred(f"nvidia.com/{number}", 0.001)
        events.streams(f"nvidia.com/{number}", 1)
    counted = seen.snapshot()
    assert counted.counters["xid"][OTHER, OTHER] == 500
    assert sum(counted.counters["xid"].values()) == MAX_KEYS + 500
    assert len(counted.streams) == MAX_KEYS
    durations = counted.durations["preferred_allocation"]
    assert sum(itertools.chain(*(d.counts for d in durations.values()))) == MAX_KEYS + 500
    assert len(durations) == MAX_KEYS + 1
