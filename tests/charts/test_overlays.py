# SPDX-License-Identifier: Apache-2.0
"""The overlays are what the chart makes of the same configuration, by old and new kustomize."""

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
OF_HELM = {"app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"}


@pytest.fixture(scope="session")
def kubectls() -> dict[str, str]:
    """Give Debian's kubectl 1.20, whose kustomize is 2.0.3, and this machine's."""

    def build(place: Path) -> None:
        unpacked("bookworm", ["kubernetes-client"], place)

    old = built_once("kubernetes-client", "bookworm, whole", build) / "usr/bin/kubectl"
    own = shutil.which("kubectl")
    assert own is not None
    return {"old": str(old), "own": own}


def built(kubectl: str, overlay: str) -> list[dict[str, Any]]:
    """Return the objects of an overlay."""
    command = [kubectl, "kustomize", str(PLACE / "overlays" / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def in_order(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Return objects by kind, without what Helm adds, lists of named things in one order."""
    found = {one["kind"]: one for one in objects}
    found.pop("Namespace", None)
    for one in found.values():
        labels = one["metadata"]["labels"]
        one["metadata"]["labels"] = {k: v for k, v in labels.items() if k not in OF_HELM}
    pod = found["DaemonSet"]["spec"]["template"]["spec"]
    for part in (pod, pod["containers"][0]):
        for key in BY_NAME:
            if key in part:
                part[key] = sorted(part[key], key=lambda entry: str(entry["name"]))
    return found


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("which", ["old", "own"])
def test_an_overlay_is_what_the_chart_makes(
    kubectls: dict[str, str], which: str, overlay: str
) -> None:
    objects = built(kubectls[which], overlay)
    (text,) = [one["data"]["default"] for one in objects if one["kind"] == "ConfigMap"]
    (found,) = [one for one in objects if one["kind"] == "DaemonSet"]
    (inner,) = found["spec"]["template"]["spec"]["containers"]
    said = read_overrides({}, {one["name"]: one["value"] for one in inner["env"] if "value" in one})
    assert config_reader.read(text.encode(), overlay, said.overrides).findings == ()
    values = yaml.safe_load((PLACE / "values.yaml").read_text())
    values["devicePlugin"]["config"]["data"]["default"] = text
    made = rendered(values, namespace="gpuhook")
    assert in_order(objects) == in_order(made)


def test_every_overlay_is_tested() -> None:
    assert {path.name for path in (PLACE / "overlays").iterdir()} == set(OVERLAYS)


@pytest.fixture
def changed(tmp_path: Path) -> Callable[[str], Path]:
    """Give a copy of the manifests in which an overlay's patch of the container is another."""

    def change(text: str) -> Path:
        shutil.copytree(PLACE, tmp_path / "kubernetes")
        (tmp_path / "kubernetes/overlays/mps/device-plugin.yaml").write_text(text)
        return tmp_path / "kubernetes/overlays/mps"

    return change


def test_a_patch_for_another_container_is_seen(
    kubectls: dict[str, str], changed: Callable[[str], Path]
) -> None:
    """The comparison above is no empty one."""
    text = (PLACE / "overlays/mps/device-plugin.yaml").read_text()
    place = changed(text.replace("privileged: true", "privileged: false"))
    done = subprocess.run(
        [kubectls["own"], "kustomize", str(place)], capture_output=True, text=True, check=True
    )
    found = in_order(list(yaml.safe_load_all(done.stdout)))
    assert found["DaemonSet"] != in_order(built(kubectls["own"], "mps"))["DaemonSet"]
