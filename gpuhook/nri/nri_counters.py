# SPDX-License-Identifier: Apache-2.0
"""Counters of the NRI plugin, as metrics."""

from __future__ import annotations

from threading import Lock

from gpuhook.device_plugin.metrics import metric_family
from gpuhook.device_plugin.metrics.counters import Durations
from gpuhook.device_plugin.metrics.metric_family import COUNTER, GAUGE, HISTOGRAM, MetricFamily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

INJECTED, UNCHANGED, REFUSED = "injected", "unchanged", "refused"
_HELP = {
    "creates": "Containers that the runtime has created",
    "connections": "Connections to the runtime",
    "started_without": "Containers that requested devices and started without, before the plugin",
    "ready": "1 if the runtime asks the plugin about containers",
    "create_seconds": "Time to answer the runtime about a container",
}
_OWN = "gpuhook_nri"


class NriCounters:
    """The counters of one process. Any thread may count."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._creates = dict.fromkeys((INJECTED, UNCHANGED, REFUSED), 0)
        self._numbers = {"connections": 0, "started_without": 0}
        self._seconds = {True: Durations(), False: Durations()}
        self.is_ready = False

    def create(self, outcome: str, seconds: float, *, is_read: bool) -> None:
        """Count a container; `is_read`: it may have requested devices."""
        with self._lock:
            self._creates[outcome] += 1
            self._seconds[is_read].add(seconds)

    def count(self, name: str) -> None:
        """Add to `connections` or `started_without`."""
        with self._lock:
            self._numbers[name] += 1

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """Return all numbers and their content type, in the format of the header `accept`."""
        with self._lock:
            return metric_family.text(self._families(), accept)

    def _families(self) -> Iterator[MetricFamily]:
        creates = [((outcome,), times) for outcome, times in self._creates.items()]
        yield MetricFamily(f"{_OWN}_creates", COUNTER, _HELP["creates"], ("outcome",), creates)
        for name, times in self._numbers.items():
            yield MetricFamily(f"{_OWN}_{name}", COUNTER, _HELP[name], (), [((), times)])
        ready = [((), int(self.is_ready))]
        yield MetricFamily(f"{_OWN}_ready", GAUGE, _HELP["ready"], (), ready)
        seconds = [(("maybe" if is_read else "none",), d) for is_read, d in self._seconds.items()]
        name = f"{_OWN}_create_seconds"
        yield MetricFamily(name, HISTOGRAM, _HELP["create_seconds"], ("requests",), seconds)
