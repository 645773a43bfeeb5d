# SPDX-License-Identifier: Apache-2.0
"""The chart's alerts, evaluated by promtool, and its dashboard for Grafana."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuhook.device_plugin.metrics import exposition
from gpuhook.device_plugin.metrics.counters import COUNTERS
from tests.charts.rendering import CHART, ROOT, one, rendered
from tests.charts.values import SETS
from tests.contract.build_cache import built

METRICS = {*exposition.GAUGES, *(f"gpuhook_{name}_total" for name in COUNTERS)}
PAGE = (ROOT / "docs/how-to/alerts.md").read_text(encoding="utf-8")
NODE = 'instance="n1"'
POD = f'{NODE},gpu="GPU-1",namespace="ml",pod="train",container="main"'
LIMIT = f'gpuhook_container_memory_limit_bytes{{{POD},by="%s"}}'
USED = f"gpuhook_container_memory_used_bytes{{{POD}}}"
XID = f'gpuhook_xid_total{{{NODE},gpu="GPU-1",xid="79"}}'
ACTION = f'gpuhook_guard_actions_total{{{NODE},action="%s",resource="nvidia.com/gpu"}}'
RELOAD = f'gpuhook_config_reloads_total{{{NODE},outcome="%s"}}'
REGISTRATION = f'gpuhook_registrations_total{{{NODE},resource="nvidia.com/gpu",outcome="%s"}}'
DEVICES = f'gpuhook_devices{{{NODE},resource="nvidia.com/gpu",state="%s"}}'
SOURCE = f'gpuhook_source_up{{{NODE},source="nvml"}}'
# The alert, the values of series minute by minute, and the minute in which it fires; "" for none.
CASES: list[tuple[str, dict[str, str], int, str]] = [
    ("GpuhookDeviceUnhealthy", {DEVICES % "unhealthy": "1x20"}, 6, "1 devices of nvidia.com/gpu"),
    ("GpuhookDeviceUnhealthy", {DEVICES % "unhealthy": "0x3 1x3 0x20"}, 9, ""),
    ("GpuhookDeviceUnhealthy", {DEVICES % "healthy": "8x20"}, 9, ""),
    ("GpuhookXid", {XID: "_x30 1x20"}, 35, "XID 79 of GPU-1 on n1"),
    ("GpuhookXid", {XID: "1x30 2x20"}, 35, "XID 79 of GPU-1 on n1"),
    ("GpuhookXid", {XID: "1x60"}, 50, ""),
    ("GpuhookSourceDown", {SOURCE: "0x20"}, 6, "nvml does not answer on n1"),
    ("GpuhookSourceDown", {SOURCE: "1x5 0x2 1x20"}, 9, ""),
    ("GpuhookMemoryAboveLimit", {USED: "5x20", LIMIT % "nobody": "4x20"}, 6, "ml/train/main uses"),
    ("GpuhookMemoryAboveLimit", {USED: "4x20", LIMIT % "nobody": "4x20"}, 9, ""),
    ("GpuhookMemoryAboveLimit", {USED: "5x20", LIMIT % "driver": "4x20"}, 9, ""),
    (
        "GpuhookGuardActed",
        {ACTION % "kill": "_x30 1x20"},
        35,
        "has terminated processes of a container",
    ),
    ("GpuhookGuardActed", {ACTION % "report": "_x30 1x20"}, 35, ""),
    ("GpuhookConfigRefused", {RELOAD % "refused": "_x30 1x20"}, 35, "n1 refuses"),
    ("GpuhookConfigRefused", {RELOAD % "applied": "1x30 2x20"}, 35, ""),
    ("GpuhookRegistrationFailed", {REGISTRATION % "failed": "3x30 4x9"}, 35, "refuses nvidia.com"),
    ("GpuhookRegistrationFailed", {REGISTRATION % "registered": "1x30 2x9"}, 35, ""),
]


def rules() -> list[dict[str, Any]]:
    """Return the alerts of the rendered PrometheusRule."""
    (group,) = one(rendered(SETS["alerts"]), "PrometheusRule")["spec"]["groups"]
    assert isinstance(group["rules"], list)
    return group["rules"]


@pytest.fixture(scope="module")
def promtool() -> str:
    """Unpack Debian's package of Prometheus, without its installation."""
    return str(built("prometheus", "the archive's package", _unpack) / "usr/bin/promtool")


def _unpack(directory: Path) -> None:
    command = ["apt-get", "-o", "APT::Sandbox::User=root", "download", "prometheus"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    (package,) = directory.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, directory], check=True)
    package.unlink()


def test_rules(promtool: str, tmp_path: Path) -> None:
    """Each alert fires in its case, and in no other."""
    (tmp_path / "rules.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "gpuhook", "rules": rules()}]}), encoding="utf-8"
    )
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": v} for name, v in series.items()],
            "alert_rule_test": [expectation(alert, series, minute, summary)],
        }
        for alert, series, minute, summary in CASES
    ]
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    for command in (["check", "rules", "rules.yaml"], ["test", "rules", "tests.yaml"]):
        done = subprocess.run(
            [promtool, *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def expectation(alert: str, series: dict[str, str], minute: int, summary: str) -> dict[str, Any]:
    """Return promtool's description of what fires: the alert with its labels, or nothing."""
    expected: dict[str, Any] = {"alertname": alert, "eval_time": f"{minute}m"}
    if summary:
        (rule,) = (rule for rule in rules() if rule["alert"] == alert)
        labels = dict(re.findall(r'(\w+)="([^"]*)"', next(iter(series))))
        if alert == "GpuhookDeviceUnhealthy":
            del labels["state"]  # devices of a resource are added up
        text = summary_of(rule, labels)
        assert summary in text
        expected["exp_alerts"] = [
            {"exp_labels": labels | rule["labels"], "exp_annotations": {"summary": text}}
        ]
    return expected


def summary_of(rule: dict[str, Any], labels: dict[str, str]) -> str:
    """Return the summary with the values of labels; the value of a device count is 1 here."""
    text = rule["annotations"]["summary"].replace("{{ $value }}", "1")
    return re.sub(r"{{ \$labels\.(\w+) }}", lambda found: labels[found[1]], text)


def test_every_alert_has_a_case_and_a_row() -> None:
    """A case that fires and one that does not; the page on alerts has a row for each."""
    names = {rule["alert"] for rule in rules()}
    assert names == {alert for alert, _, _, summary in CASES if summary}
    assert names == {alert for alert, _, _, summary in CASES if not summary}
    assert names == set(re.findall(r"^\| `(Gpuhook\w+)`", PAGE, re.MULTILINE))


def test_metrics_of_alerts_are_exported() -> None:
    used = {name for rule in rules() for name in re.findall(r"\bgpuhook_\w+", rule["expr"])}
    assert len(used) > 5
    assert used - METRICS == set()


def test_dashboard_is_unchanged() -> None:
    """The ConfigMap has the dashboard of the file, with the label of Grafana's sidecar."""
    found = one(rendered(SETS["alerts"]), "ConfigMap", "-dashboard")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    shipped = json.loads((CHART / "grafana-dashboard.json").read_text(encoding="utf-8"))
    assert json.loads(found["data"]["gpuhook.json"]) == shipped
