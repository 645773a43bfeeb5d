# SPDX-License-Identifier: Apache-2.0
"""The example values for clusters that leave NVIDIA's GPU operator, and the table of its keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from gpuhook.device_plugin.config import config_reader
from gpuhook.device_plugin.config.overrides import read_overrides
from tests.charts.rendering import CHART, ROOT, container, one, pod, rendered, variables

EXAMPLE = ROOT / "packaging/kubernetes/values-from-gpu-operator.yaml"
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs/how-to/migration.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("| ClusterPolicy | value of gpuhook's chart |")[2].partition("\n\n")[0]
# Keys with free contents in the chart's schema.
FREE = {"affinity", "env", "labels", "resources", "tolerations", "updateStrategy"}


def values() -> dict[str, Any]:
    return dict(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8")))


def paths(below: dict[str, Any], above: str = "") -> Iterator[str]:
    """Yield the path of each value."""
    for key, value in below.items():
        if isinstance(value, dict) and value and key not in {*FREE, "data"}:
            yield from paths(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def is_value_of_the_chart(path: str) -> bool:
    place: Any = DEFAULTS
    for key in path.split("."):
        if not isinstance(place, dict) or key not in place:
            return False
        place = place[key]
    return True


def named_values() -> set[str]:
    """Return the chart's values in the second column of the table; remarks follow a semicolon."""
    rows = [row.split(" | ")[1] for row in TABLE.splitlines() if row.startswith("| `")]
    return {
        name.partition(":")[0]
        for row in rows
        for name in re.findall(r"`([A-Za-z][\w.]*(?:: [^`]*)?)`", row.partition(";")[0])
    }


def test_example_renders() -> None:
    objects = rendered(values())
    args = container(objects, "installer")["args"]
    assert args[args.index("--engine") + 1] == "containerd"
    assert args[args.index("--config") + 1] == "/etc/containerd/config.toml"
    assert args[args.index("--install-dir") + 1] == "/usr/local/nvidia/gpuhook"
    assert "--set-as-default" in args
    env = variables(objects)
    assert env["MIG_STRATEGY"] == "single"
    assert env["NVIDIA_DRIVER_ROOT"] == "/run/nvidia/driver"
    assert env["DEVICE_LIST_STRATEGY"] == "envvar"
    assert env["PASS_DEVICE_SPECS"] == "true"
    assert env["DEFAULT_CONFIG"] == "default"
    assert container(objects)["image"] == "registry.example/gpus/gpuhook:latest"
    assert pod(objects)["tolerations"] == values()["tolerations"]
    assert one(objects, "DaemonSet", "plugin")["spec"]["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1},
    }
    assert one(objects, "ServiceMonitor")


def test_configurations_of_the_example_are_valid() -> None:
    objects = rendered(values())
    overrides = read_overrides({}, variables(objects)).overrides
    data = one(objects, "ConfigMap")["data"]
    assert data
    for name, text in data.items():
        assert config_reader.read(text.encode(), name, overrides).findings == ()


def test_table_has_values_of_the_chart_only() -> None:
    named = named_values()
    assert len(named) > 25
    assert [name for name in sorted(named) if not is_value_of_the_chart(name)] == []


def test_table_has_each_value_of_the_example() -> None:
    """Each one replaces a key of the operator, except `image`."""
    named = named_values()
    used = [path for path in paths(values()) if not path.startswith("image.")]
    assert len(used) > 25
    missing = [
        path
        for path in used
        if not any(path == name or path.startswith(f"{name}.") for name in named)
    ]
    assert missing == []
