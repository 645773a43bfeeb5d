# SPDX-License-Identifier: Apache-2.0
"""Counters of the NRI plugin, in the text format of Prometheus."""

from __future__ import annotations

from threading import Lock

from gpuhook.device_plugin.metrics.counters import Durations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

INJECTED, UNCHANGED, REFUSED = "injected", "unchanged", "refused"
_HELP = {
    "creates": "Containers that the runtime has created",
    "connections": "Connections to the runtime",
    "started_without": "Containers that requested devices and started without, before the plugin",
}
_SECONDS = "Time to answer the runtime about a container"


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

    def text(self) -> str:
        """Return all numbers in the text format of Prometheus."""
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield from _head("creates_total", "counter", _HELP["creates"])
        for outcome, times in self._creates.items():
            yield f'gpuhook_nri_creates_total{{outcome="{outcome}"}} {times}'
        for name, times in self._numbers.items():
            yield from _head(f"{name}_total", "counter", _HELP[name])
            yield f"gpuhook_nri_{name}_total {times}"
        yield from _head("ready", "gauge", "1 if the runtime asks the plugin about containers")
        yield f"gpuhook_nri_ready {int(self.is_ready)}"
        yield from _head("create_seconds", "histogram", _SECONDS)
        for is_read, durations in self._seconds.items():
            label = f'requests="{"maybe" if is_read else "none"}"'
            for bound, number in durations.cumulative():
                yield f'gpuhook_nri_create_seconds_bucket{{{label},le="{bound}"}} {number:g}'
            yield f"gpuhook_nri_create_seconds_count{{{label}}} {sum(durations.counts)}"
            yield f"gpuhook_nri_create_seconds_sum{{{label}}} {durations.total:.6f}"


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP gpuhook_nri_{name} {text}", f"# TYPE gpuhook_nri_{name} {kind}"
