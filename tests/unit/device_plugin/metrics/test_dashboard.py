# SPDX-License-Identifier: Apache-2.0
"""The Grafana dashboard: its queries use exported metrics, and show all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from gpuhook.device_plugin.metrics import exposition
from gpuhook.device_plugin.metrics.counters import COUNTERS, DURATIONS

DASHBOARD = Path(__file__).parents[4] / "packaging/helm/gpuhook/grafana-dashboard.json"
METRICS = {*exposition.GAUGES, *(f"gpuhook_{name}_total" for name in COUNTERS)}
METRICS |= {
    f"gpuhook_{name}_seconds_{part}" for name in DURATIONS for part in ("bucket", "count", "sum")
}
NAME = re.compile(r"\bgpuhook_[a-z0-9_]+")


def queries() -> Iterator[str]:
    """Yield the Prometheus queries of the dashboard."""
    dashboard = json.loads(DASHBOARD.read_text())
    for variable in dashboard["templating"]["list"]:
        yield variable["query"]
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def test_queried_metrics_are_exported() -> None:
    asked = {name for query in queries() for name in NAME.findall(query)}
    assert asked
    assert asked - METRICS == set()


def test_exported_metrics_are_shown() -> None:
    """Showing the buckets of a histogram is sufficient."""
    asked = {name for query in queries() for name in NAME.findall(query)}
    parts = ("_seconds_count", "_seconds_sum")
    assert {name for name in METRICS - asked if not name.endswith(parts)} == set()


def test_labels_in_queries_exist() -> None:
    """Selectors and legends use labels of their metrics only."""
    known = {label for labels, _ in exposition.GAUGES.values() for label in labels}
    known |= {label for labels, _ in COUNTERS.values() for label in labels}
    known |= {"le", "resource", "instance"}
    used: set[str] = set()
    dashboard = json.loads(DASHBOARD.read_text())
    for query in queries():
        used |= set(re.findall(r"([a-z_]+)\s*=~?\s*\"", query))
        for group in re.findall(r"(?:by|on|group_left)\s*\(([^)]*)\)", query):
            used |= {word.strip() for word in group.split(",")}
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            used |= set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
    assert used - known == set()


def test_panels_do_not_overlap_and_have_unique_ids() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    places = [
        (x, y)
        for panel in panels
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(places) == len(set(places))
    assert max(x for x, _ in places) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)
