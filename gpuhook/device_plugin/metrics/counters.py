# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ARG002 # what is counted is told to the log as well, with more than a count needs
"""What has happened since the plugin started: counted where it happens, told when somebody asks.

Plain numbers: counting costs a microsecond and no library. Any thread may count. It is told what
the server of a resource tells its observer, and what only metrics want to know.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from threading import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.errors import GpuhookError

# Seconds. Allocations take less than a millisecond; registration waits for the kubelet.
BUCKETS = (
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
MAX_KEYS = 1000  # of one counter; what comes later is counted together
OTHER = "other"

ALLOCATED, REGISTERED, STARTED = "allocated", "registered", "started"
REFUSED, FAILED = "refused", "failed"  # by us; by the kubelet
APPLIED, UNCHANGED = "applied", "unchanged"  # and REFUSED: of a new configuration
ALLOCATE, PRE_START = "Allocate", "PreStartContainer"

# The labels of each counter, in the order of its keys.
COUNTERS = {
    "allocations": ("resource", "outcome"),
    "starts": ("resource", "outcome"),
    "refusals": ("resource", "method"),
    "registrations": ("resource", "outcome"),
    "lists": ("resource",),
    "troubles": ("kind",),
    "reloads": ("outcome",),
    "xid": ("gpu", "xid"),
    "guard_actions": ("action", "resource"),
}
DURATIONS = ("allocate", "preferred_allocation", "registration")  # all by resource


@dataclass(slots=True)
class Durations:
    """How long something took: how often it fell in each bucket, the last being without end."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one that took `seconds`; a clock that ran backwards counts as 0."""
        seconds = max(0.0, seconds)
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """Return (upper bound, count up to it) of each bucket."""
        bounds = [*(str(bound) for bound in BUCKETS), "+Inf"]
        sums, count = [], 0
        for found in self.counts:
            count += found
            sums.append(float(count))
        return list(zip(bounds, sums, strict=True))


@dataclass(frozen=True, slots=True)
class Counted:
    """All numbers at one moment.

    `counters` are by name and by the values of their labels, `durations` by name and resource,
    `streams` by resource.
    """

    counters: dict[str, dict[tuple[str, ...], int]] = field(default_factory=dict)
    durations: dict[str, dict[str, Durations]] = field(default_factory=dict)
    streams: dict[str, int] = field(default_factory=dict)
    configuration: tuple[str, str] | None = None  # name, hash


class Observations:
    """The counters of one plugin process. Times are in seconds."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counters: dict[str, Counter[tuple[str, ...]]] = {name: Counter() for name in COUNTERS}
        self._durations: dict[str, dict[str, Durations]] = {name: {} for name in DURATIONS}
        self._streams: dict[str, int] = {}
        self._configuration: tuple[str, str] | None = None

    def counted(self) -> Counted:
        """Return the numbers as they are now."""
        with self._lock:
            durations = {
                name: {key: Durations(list(d.counts), d.total) for key, d in by.items()}
                for name, by in self._durations.items()
            }
            counters = {name: dict(counter) for name, counter in self._counters.items()}
            return Counted(counters, durations, dict(self._streams), self._configuration)

    def allocated(self, resource: str, requests: Sequence[Sequence[str]], seconds: float) -> None:
        """Count an Allocate by the containers that were answered."""
        self._count("allocations", resource, ALLOCATED, by=len(requests))
        self._took("allocate", resource, seconds)

    def refused(self, resource: str, method: str, reason: str, seconds: float) -> None:
        """Count a call that was answered with an error; the reason is for the log."""
        self._count("refusals", resource, method)
        if method == ALLOCATE:
            self._count("allocations", resource, REFUSED)
            self._took("allocate", resource, seconds)
        elif method == PRE_START:
            self._count("starts", resource, REFUSED)

    def broken(self, resource: str, method: str, error: Exception) -> None:
        """Count a fault of ours; the call that it ended is counted as refused."""
        self.trouble("fault")

    def pre_started(self, resource: str, ids: Sequence[str], seconds: float) -> None:
        """Count a PreStartContainer that let a container start."""
        self._count("starts", resource, STARTED)

    def preferred(self, resource: str, seconds: float) -> None:
        """Count a GetPreferredAllocation that was answered."""
        self._took("preferred_allocation", resource, seconds)

    def registered(self, resource: str, seconds: float) -> None:
        """Count a Register that the kubelet took."""
        self._count("registrations", resource, REGISTERED)
        self._took("registration", resource, seconds)

    def registration_failed(self, resource: str, reason: GpuhookError, retry: float) -> None:
        """Count a Register that the kubelet did not take."""
        self._count("registrations", resource, FAILED)

    def registration_skipped(self, resource: str) -> None:
        """Count nothing: nobody was to be told."""

    def kubelet_absent(self, socket: str) -> None:
        """Count that there is no kubelet to register with."""
        self.trouble("kubelet-absent")

    def serving(self, resource: str, socket: str) -> None:
        """Count nothing: a resource that is served has its registrations."""

    def serving_failed(self, resource: str, reason: GpuhookError, retry: float | None) -> None:
        """Count that a resource could not be served."""
        self.trouble("not-serving")

    def unwatched(self, resource: str) -> None:
        """Count that the kubelet took a registration and watches no list."""
        self.trouble("unwatched")

    def watch_failed(self, reason: OSError) -> None:
        """Count that a directory cannot be watched."""
        self.trouble("no-inotify")

    def list_sent(self, resource: str, devices: int, size: int) -> None:
        """Count a list of devices that a stream got."""
        self._count("lists", resource)

    def streams(self, resource: str, count: int) -> None:
        """Note how many ListAndWatch streams there are."""
        with self._lock:
            if resource in self._streams or len(self._streams) < MAX_KEYS:
                self._streams[resource] = count

    def stopped(self, resource: str) -> None:
        """Note that a resource is no longer offered."""
        with self._lock:
            self._streams.pop(resource, None)

    def trouble(self, kind: str) -> None:
        """Count something that went wrong and was got over: `kind` is one of a few words."""
        self._count("troubles", kind)

    def xid(self, gpu: str, number: int) -> None:
        """Count an XID of the GPU with this UUID."""
        self._count("xid", gpu, str(number))

    def guarded(self, action: str, resource: str) -> None:
        """Count what the guard did about a container above its limit: report, terminate, kill.

        Or "failed": it may not send the signal.
        """
        self._count("guard_actions", action, resource)

    def reloaded(self, outcome: str) -> None:
        """Count a look at a new configuration: APPLIED, UNCHANGED or REFUSED."""
        self._count("reloads", outcome)

    def configured(self, name: str, digest: str) -> None:
        """Note which configuration is in force: its name ("default") and the hash of its values."""
        with self._lock:
            self._configuration = (name, digest)

    def _count(self, name: str, *key: str, by: int = 1) -> None:
        with self._lock:
            counter = self._counters[name]
            if key not in counter and len(counter) >= MAX_KEYS:
                key = (OTHER,) * len(key)
            counter[key] += by

    def _took(self, name: str, resource: str, seconds: float) -> None:
        with self._lock:
            durations = self._durations[name]
            if resource not in durations and len(durations) >= MAX_KEYS:
                resource = OTHER
            durations.setdefault(resource, Durations()).add(seconds)
