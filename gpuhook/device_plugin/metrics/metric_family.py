# SPDX-License-Identifier: Apache-2.0
"""Metrics in the text format of Prometheus, or in OpenMetrics for a client that accepts it.

The Prometheus library is not used: it imports an HTTP server with OpenSSL, 7 MB, for these lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.device_plugin.metrics.counters import Durations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
_PLAIN, _OPEN = "text/plain; version=0.0.4", "application/openmetrics-text; version=1.0.0"
_MAX_VALUE = 256  # characters of a label
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric: a number, or a histogram of durations, for each combination of label values.

    The name of a counter is without "_total".
    """

    name: str
    kind: str
    help_text: str
    labels: tuple[str, ...]
    series: Iterable[tuple[tuple[str, ...], float | Durations]]

    def lines(self, *, is_open: bool = False) -> Iterator[str]:
        sample = f"{self.name}_total" if self.kind == COUNTER else self.name
        metadata = self.name if is_open else sample
        yield f"# HELP {metadata} {self.help_text}"
        yield f"# TYPE {metadata} {self.kind}"
        for key, value in self.series:
            pairs = sorted(zip(self.labels, key, strict=True))
            labels = [f'{name}="{_shown(text)}"' for name, text in pairs]
            if isinstance(value, Durations):
                for bound, count in value.cumulative():
                    yield _line(f"{sample}_bucket", [*labels, f'le="{bound}"'], count)
                yield _line(f"{sample}_count", labels, sum(value.counts))
                yield _line(f"{sample}_sum", labels, value.total)
            else:
                yield _line(sample, labels, value)


def text(families: Iterable[MetricFamily], accept: str = "") -> tuple[bytes, str]:
    """Return the metrics and their content type, in the format of the header `accept`."""
    accepted = {one.partition(";")[0].strip() for one in accept.split(",")}
    is_open = _OPEN.partition(";")[0] in accepted
    lines = [line for family in families for line in family.lines(is_open=is_open)]
    lines += ["# EOF", ""] if is_open else [""]
    return "\n".join(lines).encode(), f"{_OPEN if is_open else _PLAIN}; charset=utf-8"


def _line(name: str, labels: list[str], value: float) -> str:
    return f"{name}{{{','.join(labels)}}} {float(value)}" if labels else f"{name} {float(value)}"


def _shown(value: str) -> str:
    """Return a label's value as valid UTF-8 of bounded length, escaped."""
    return value[:_MAX_VALUE].encode("utf-8", "replace").decode().translate(_ESCAPES)
