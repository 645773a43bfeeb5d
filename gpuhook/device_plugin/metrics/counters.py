# SPDX-License-Identifier: Apache-2.0
"""Counters of events since the plugin started.

Plain numbers: one count takes a microsecond. Any thread may count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from threading import Lock

# Seconds. Allocations take less than a millisecond; registration waits for the kubelet.
BUCKETS = (
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
MAX_KEYS = 1000  # of one counter; later keys are counted together as OTHER
OTHER = "other"

# The labels of each counter, in the order of its keys, and its help text for Prometheus.
COUNTERS = {
    "allocations": (
        ("resource", "outcome"),
        "Containers allocated by Allocate, and rejected calls",
    ),
    "starts": (
        ("resource", "outcome"),
        "Containers allowed to start by PreStartContainer, and rejected ones",
    ),
    "refusals": (("resource", "method"), "Calls of the kubelet answered with an error"),
    "registrations": (("resource", "outcome"), "Registrations with the kubelet"),
    "lists": (("resource",), "Device lists sent to the kubelet"),
    "troubles": (("kind",), "Errors that the plugin recovered from, by kind"),
    "config_reloads": (("outcome",), "Configuration reloads, by outcome"),
    "xid": (("gpu", "xid"), "XIDs reported by the driver"),
    "claims": (
        ("driver", "call", "outcome"),
        "Claims prepared and unprepared by a driver for Dynamic Resource Allocation",
    ),
    "guard_actions": (
        ("action", "resource"),
        "Actions of the guard on containers above their memory limit",
    ),
}
DURATIONS = {  # all by resource
    "allocate": "Time to answer Allocate",
    "preferred_allocation": "Time to answer GetPreferredAllocation",
    "registration": "Time until the kubelet answered Register",
    "claim_prepare": "Time to answer NodePrepareResources, by driver",
    "claim_unprepare": "Time to answer NodeUnprepareResources, by driver",
}


@dataclass(slots=True)
class Durations:
    """A histogram: the number of durations in each bucket, the last one without a bound."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration; a negative one, of a clock that was set back, as 0."""
        seconds = max(0.0, seconds)
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, int]]:
        """Return (upper bound, count up to it) of each bucket."""
        bounds = [*(str(bound) for bound in BUCKETS), "+Inf"]
        sums, count = [], 0
        for of_bucket in self.counts:
            count += of_bucket
            sums.append(count)
        return list(zip(bounds, sums, strict=True))


@dataclass(frozen=True, slots=True)
class CounterSnapshot:
    """All numbers at one moment.

    `counters` are by name and by the values of their labels, `durations` by name and resource,
    `streams` by resource.
    """

    counters: dict[str, dict[tuple[str, ...], int]] = field(default_factory=dict)
    durations: dict[str, dict[str, Durations]] = field(default_factory=dict)
    streams: dict[str, int] = field(default_factory=dict)
    configuration: tuple[str, str] | None = None  # name, hash


class Counters:
    """The counters of one plugin process. Times are in seconds."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counters: dict[str, Counter[tuple[str, ...]]] = {name: Counter() for name in COUNTERS}
        self._durations: dict[str, dict[str, Durations]] = {name: {} for name in DURATIONS}
        self._streams: dict[str, int] = {}
        self._configuration: tuple[str, str] | None = None

    def snapshot(self) -> CounterSnapshot:
        with self._lock:
            durations = {
                name: {key: Durations(list(d.counts), d.total) for key, d in by.items()}
                for name, by in self._durations.items()
            }
            counters = {name: dict(counter) for name, counter in self._counters.items()}
            return CounterSnapshot(counters, durations, dict(self._streams), self._configuration)

    def count(self, name: str, *key: str, by: int = 1) -> None:
        """Add to one of COUNTERS; `key` are the values of its labels."""
        with self._lock:
            counter = self._counters[name]
            if key not in counter and len(counter) >= MAX_KEYS:
                key = (OTHER,) * len(key)
            counter[key] += by

    def add_duration(self, name: str, resource: str, seconds: float) -> None:
        """Add to one of DURATIONS."""
        with self._lock:
            durations = self._durations[name]
            if resource not in durations and len(durations) >= MAX_KEYS:
                resource = OTHER
            durations.setdefault(resource, Durations()).add(seconds)

    def set_streams(self, resource: str, count: int) -> None:
        with self._lock:
            if resource in self._streams or len(self._streams) < MAX_KEYS:
                self._streams[resource] = count

    def remove_streams(self, resource: str) -> None:
        """Remove the number of streams of a resource that is no longer offered."""
        with self._lock:
            self._streams.pop(resource, None)

    def set_config(self, name: str, digest: str) -> None:
        """Set the configuration in force: its name ("default") and the hash of its values."""
        with self._lock:
            self._configuration = (name, digest)

    def xid(self, gpu: str, number: int) -> None:
        """Count an XID of the GPU with this UUID."""
        self.count("xid", gpu, str(number))
