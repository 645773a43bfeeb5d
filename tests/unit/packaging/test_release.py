# SPDX-License-Identifier: Apache-2.0
"""What a release requires: one version, a section of the changelog, a clean checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import release.__main__ as release
import yaml

CHANGELOG = """# Changelog

## [Unreleased]

## [0.2.0] - 2026-12-01

- Something new.

## [0.1.0] - 2026-11-24

- The first.
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a committed checkout of version 0.2.0."""
    files = {
        "gpuhook/__init__.py": '__version__ = "0.2.0"\n',
        "packaging/helm/gpuhook/Chart.yaml": "x: y\nversion: 0.2.0\nappVersion: 0.2.0\nz: 1\n",
        "CHANGELOG.md": CHANGELOG,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    commit(tmp_path)
    return tmp_path


def commit(place: Path) -> None:
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
        subprocess.run(["git", "-C", str(place), *identity, *words], check=True)


def test_release(checkout: Path) -> None:
    assert release.check(checkout, "v0.2.0") == release.check(checkout, "") == "0.2.0"
    assert release.notes(checkout, "0.2.0") == "- Something new.\n"
    assert release.notes(checkout, "0.1.0") == "- The first.\n"


@pytest.mark.parametrize(
    ("path", "old", "new", "reason"),
    [
        ("CHANGELOG.md", "## [0.2.0] - 2026-12-01", "## [0.2.0]", "has no section"),
        ("CHANGELOG.md", "- Something new.", "", "is empty"),
        (
            "packaging/helm/gpuhook/Chart.yaml",
            "appVersion: 0.2.0",
            "appVersion: 0.1.0",
            "appVersion",
        ),
        ("gpuhook/__init__.py", "__version__", "version", "has no __version__"),
    ],
)
def test_refusals(checkout: Path, path: str, old: str, new: str, reason: str) -> None:
    text = (checkout / path).read_text(encoding="utf-8")
    (checkout / path).write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(release.NotReleasedError, match=reason):
        release.check(checkout, "")


def test_other_tag_and_changed_files(checkout: Path) -> None:
    with pytest.raises(release.NotReleasedError, match=r"tag v0\.2\.0"):
        release.check(checkout, "v0.3.0")
    (checkout / "new file").touch()
    with pytest.raises(release.NotReleasedError, match="not committed"):
        release.check(checkout, "")


def test_chart_names_the_published_image(tmp_path: Path) -> None:
    made = release.chart(release.CHECKOUT, tmp_path)
    values = yaml.safe_load((made / "values.yaml").read_text("utf-8"))
    assert values["image"]["repository"] == release.IMAGE
    assert f'`image.repository` | `"{release.IMAGE}"`' in (made / "README.md").read_text("utf-8")
    assert (made / "Chart.yaml").read_text("utf-8") == (
        release.CHECKOUT / "packaging/helm/gpuhook/Chart.yaml"
    ).read_text("utf-8")


def test_chart_without_an_image_is_refused(checkout: Path, tmp_path: Path) -> None:
    (checkout / "packaging/helm/gpuhook/values.yaml").write_text("image: {}\n", encoding="utf-8")
    with pytest.raises(release.NotReleasedError, match=r"values\.yaml"):
        release.chart(checkout, tmp_path / "made")
