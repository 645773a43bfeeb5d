# SPDX-License-Identifier: Apache-2.0
"""The README of the chart: all values, in the package too."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

CHECKOUT = Path(__file__).parents[2]
CHART = CHECKOUT / "packaging/helm/gpuhook"
HELM = Path(sys.executable).with_name("helm")
sys.path.insert(0, str(CHECKOUT / "packaging"))

from generate import chart_values  # noqa: E402 # of this checkout


def leaves(values: dict[str, Any], prefix: str = "") -> list[str]:
    """Return the paths of all values that are not mappings."""
    found: list[str] = []
    for name, value in values.items():
        path = prefix + name
        found += leaves(value, f"{path}.") if isinstance(value, dict) and value else [path]
    return found


def test_every_value_is_in_the_readme() -> None:
    """A value has a row, or it is a part of an object of Kubernetes that has one."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    rows = [one for one in chart_values.values() if not one.is_section]
    for path in leaves(values):
        assert any(path == one.path or path.startswith(f"{one.path}.") for one in rows), path
    for one in rows:
        value: Any = values
        for name in one.path.split("."):
            value = value[name]
        assert yaml.safe_load(one.default) == value
        assert one.description.endswith((".", "]", "?")), one


def test_words_are_those_of_the_schema() -> None:
    words = {one.path: one.words for one in chart_values.values()}
    assert words["image.pullPolicy"] == ("Always", "IfNotPresent", "Never")
    assert words["deviceListStrategy"][0] == "envvar"
    assert words["metrics.port"] == ()


def test_value_without_a_comment_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("values.yaml", "values.schema.json", "Chart.yaml"):
        text = (CHART / name).read_text()
        (tmp_path / name).write_text(text.replace("  # The TCP port of the metrics.\n", ""))
    monkeypatch.setattr(chart_values, "CHART", tmp_path)
    with pytest.raises(ValueError, match=r"no comment above metrics\.port$"):
        chart_values.files()


def test_package_has_the_readme(tmp_path: Path) -> None:
    """The packed chart has the README, and Chart.yaml what registries show."""
    command = [str(HELM), "package", str(CHART), "--destination", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    (package,) = tmp_path.iterdir()
    with tarfile.open(package) as archive:
        names = archive.getnames()
        chart = yaml.safe_load(archive.extractfile("gpuhook/Chart.yaml") or b"")
    assert "gpuhook/README.md" in names
    assert all(chart[key] for key in ("home", "icon", "maintainers", "sources", "description"))
    assert (CHECKOUT / "docs/images" / chart["icon"].rpartition("/")[2]).is_file()
