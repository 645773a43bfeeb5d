# SPDX-License-Identifier: Apache-2.0
"""The examples of the guide agree with the chart."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import click.testing
import pytest
import yaml

from gpuhook.cli import main
from gpuhook.device_plugin.config import config_reader
from gpuhook.device_plugin.config.overrides import read_overrides
from tests.charts.rendering import CHART, ROOT, container, one, rendered, variables
from tests.charts.values import GUARD, HOST_FILES, MPS, SETS, TIME_SLICES

PAGE = (ROOT / "docs/how-to/kubernetes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
VALUES = [yaml.safe_load(text) for text in BLOCKS if text.startswith("# values.yaml")]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ")
]


@pytest.mark.parametrize("values", VALUES, ids=range(len(VALUES)))
def test_values_of_the_guide_are_valid(values: dict[str, Any]) -> None:
    objects = rendered(values)
    overrides = read_overrides({}, variables(objects)).overrides
    texts = [t for o in objects if o["kind"] == "ConfigMap" for t in o["data"].values()]
    for text in texts:
        assert config_reader.read(text.encode(), "guide", overrides).findings == ()
    assert texts or values.keys() & {"metrics", "features", "hiddenDirectories", "devicePlugin"}


def test_walk_through_of_the_guide() -> None:
    first = VALUES[0]
    objects = rendered(first)
    assert one(objects, "RuntimeClass")["metadata"]["name"] == "nvidia"
    assert container(objects)["image"] == "REGISTRY/gpuhook:TAG"
    assert container(objects, "installer")["image"] == "REGISTRY/gpuhook:TAG"
    pods = [list(yaml.safe_load_all(text)) for text in BLOCKS if "gpu-test-2" in text]
    for pod in pods[0]:
        assert pod["spec"]["runtimeClassName"] == "nvidia"
        (inner,) = pod["spec"]["containers"]
        assert inner["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert rendered(VALUES[0] | {"devicePlugin": yaml.safe_load(BLOCKS[-2])["devicePlugin"]})


@pytest.mark.parametrize(
    ("feature", "values"),
    [
        ("whole GPUs, replicas, memory limits, labels, metrics", VALUES[0]),
        ("MIG", {"migStrategy": "single"}),
        ("the guard ends processes", GUARD),
        (
            "the guard reads processes in cgroups with other names",
            {"features": {"foreignCgroups": True}},
        ),
        ("time slices and compute modes", TIME_SLICES),
        ("MPS", MPS),
        ("no special runtime", HOST_FILES),
        ("no handler on the nodes", SETS["no-handler"]),
    ],
)
def test_table_of_capabilities(feature: str, values: dict[str, Any]) -> None:
    (row,) = [row for row in ROWS if row[0] == feature]
    context = container(rendered(values))["securityContext"]
    added = context.get("capabilities", {}).get("add", [])
    made = "`privileged`" if context.get("privileged") else ", ".join(f"`{c}`" for c in added)
    assert row[-1].strip("| ") == (made or "nothing")


def test_values_of_the_table_exist() -> None:
    """Each name in the first column of the table of values is a key of values.yaml."""
    known = yaml.safe_load((CHART / "values.yaml").read_text())
    table = PAGE.partition("## Values")[2].partition("## Several")[0]
    count = 0
    for row in [line for line in table.splitlines() if line.startswith("| `")]:
        above: list[str] = []
        for name in re.findall(r"`([^`]+)`", row.split(" | ")[0]):
            path = [*above, *name[1:].split(".")] if name[0] == "." else name.split(".")
            place: Any = known
            for key in path:
                assert key in place, name
                place = place[key]
            above = above if name[0] == "." else path[:-1]
            count += 1
    assert count > 30


@pytest.mark.parametrize("profile", ["t4", "a100-mig"])
def test_command_removes_labels_of_gpuhook_only(profile: str) -> None:
    """Its filters pass each label of gpuhook to kubectl, and no other label."""
    (command,) = re.findall(r"\{\{end\}\}' \|\n(.*?) \| xargs", PAGE, re.DOTALL)
    words = ["labels", "--inventory", profile, "--mig-strategy", "mixed", "-o", "json"]
    done = click.testing.CliRunner().invoke(main, words)
    ours = sorted(json.loads(done.stdout)["labels"])
    assert len(ours) > 20
    others = [
        "kubernetes.io/hostname", "nvidia.com/gpu.present", "nvidia.com/gpu.deploy.driver",
        "nvidia.com/mig.config", "nvidia.com/mig.config.state", "nvidia.com/device-plugin.config",
        "feature.node.kubernetes.io/pci-10de.present", "example.com/nvidia.com/gpu.count",
    ]  # fmt: skip
    listing = "".join(f"{name}\n" for name in (*others, *ours))
    ran = subprocess.run(
        command, input=listing, shell=True, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == [f"{name}-" for name in ours]
