# SPDX-License-Identifier: Apache-2.0
"""The kustomize overlays equal the chart with the same configuration, by old and new kustomize."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuhook.device_plugin.config import config_reader
from gpuhook.device_plugin.config.overrides import read_overrides
from tests.charts.rendering import ROOT, rendered
from tests.contract.build_cache import built as built_once
from tests.contract.debs import unpacked

PLACE = ROOT / "packaging/kubernetes"
OVERLAYS = ("time-slicing", "mig-mixed", "mps")
BY_NAME = ("env", "volumeMounts", "volumes")
HELM_LABELS = {"app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"}


@pytest.fixture(scope="session")
def kubectls() -> dict[str, str]:
    """Return Debian's kubectl 1.20, with kustomize 2.0.3, and this machine's kubectl."""

    def build(place: Path) -> None:
        unpacked("bookworm", ["kubernetes-client"], place)

    old = built_once("kubernetes-client", "bookworm, whole", build) / "usr/bin/kubectl"
    current = shutil.which("kubectl")
    assert current is not None
    return {"old": str(old), "own": current}


def build_overlay(kubectl: str, overlay: str) -> list[dict[str, Any]]:
    """Return the objects of an overlay."""
    command = [kubectl, "kustomize", str(PLACE / "overlays" / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def normalized(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Return objects by kind, without Helm's labels, with lists sorted by name."""
    by_kind = {one["kind"]: one for one in objects}
    by_kind.pop("Namespace", None)
    for one in by_kind.values():
        labels = one["metadata"]["labels"]
        one["metadata"]["labels"] = {k: v for k, v in labels.items() if k not in HELM_LABELS}
    pod = by_kind["DaemonSet"]["spec"]["template"]["spec"]
    for part in (pod, pod["containers"][0]):
        for key in BY_NAME:
            if key in part:
                part[key] = sorted(part[key], key=lambda entry: str(entry["name"]))
    return by_kind


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("which", ["old", "own"])
def test_overlay_equals_the_chart(kubectls: dict[str, str], which: str, overlay: str) -> None:
    objects = build_overlay(kubectls[which], overlay)
    (text,) = [one["data"]["default"] for one in objects if one["kind"] == "ConfigMap"]
    (daemon_set,) = [one for one in objects if one["kind"] == "DaemonSet"]
    (inner,) = daemon_set["spec"]["template"]["spec"]["containers"]
    overrides = read_overrides(
        {}, {one["name"]: one["value"] for one in inner["env"] if "value" in one}
    )
    assert config_reader.read(text.encode(), overlay, overrides.overrides).findings == ()
    values = yaml.safe_load((PLACE / "values.yaml").read_text())
    values["devicePlugin"]["config"]["data"]["default"] = text
    made = rendered(values, namespace="gpuhook")
    assert normalized(objects) == normalized(made)


def test_each_overlay_is_tested() -> None:
    assert {path.name for path in (PLACE / "overlays").iterdir()} == set(OVERLAYS)


@pytest.fixture
def changed_overlay(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies the manifests with another patch of an overlay's container."""

    def change(text: str) -> Path:
        shutil.copytree(PLACE, tmp_path / "kubernetes")
        (tmp_path / "kubernetes/overlays/mps/device-plugin.yaml").write_text(text)
        return tmp_path / "kubernetes/overlays/mps"

    return change


def test_changed_patch_is_a_difference(
    kubectls: dict[str, str], changed_overlay: Callable[[str], Path]
) -> None:
    """The comparison above compares the patched container."""
    text = (PLACE / "overlays/mps/device-plugin.yaml").read_text()
    place = changed_overlay(text.replace("privileged: true", "privileged: false"))
    done = subprocess.run(
        [kubectls["own"], "kustomize", str(place)], capture_output=True, text=True, check=True
    )
    patched = normalized(list(yaml.safe_load_all(done.stdout)))
    assert patched["DaemonSet"] != normalized(build_overlay(kubectls["own"], "mps"))["DaemonSet"]
