# SPDX-License-Identifier: Apache-2.0
"""Objects of the chart, the manifests and the pages have the types of Kubernetes 1.36.

kubernetes-validate has the JSON schemas of its OpenAPI document; the strict ones know no other
field.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.charts.rendering import ROOT, one, rendered
from tests.charts.values import SETS

RELEASE = "1.36"
# Kinds of the Prometheus operator are no part of Kubernetes.
FOREIGN = "monitoring.coreos.com/v1"
MANIFESTS = sorted((ROOT / "packaging/kubernetes").glob("*.yaml"))
PAGES = [ROOT / "docs/dra.md", ROOT / "docs/nri.md"]
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def validate(obj: dict[str, Any]) -> None:
    """Raise the error of an object that the API server of 1.36 would refuse, or store in part."""
    if obj["apiVersion"] != FOREIGN:
        assert kubernetes_validate.validate(obj, RELEASE, strict=True) == RELEASE


@pytest.mark.parametrize("values", SETS.values(), ids=SETS.keys())
def test_rendered_objects(values: dict[str, Any]) -> None:
    for obj in rendered(values):
        validate(obj)


@pytest.mark.parametrize("version", ["1.22.0", "1.32.0", "1.33.4", "1.34.0", "1.35.1", "1.37.0"])
def test_objects_for_other_versions(version: str) -> None:
    """Their types are also in 1.36."""
    values = SETS["dra"] if version > "1.30" else {}
    for obj in rendered(values, "--kube-version", version):
        validate(obj)


def objects_of(text: str) -> Iterator[dict[str, Any]]:
    """Yield the whole objects of Kubernetes in a text, which may have values of the chart."""
    for obj in yaml.safe_load_all(text):
        if isinstance(obj, dict) and {"apiVersion", "kind", "metadata"} <= obj.keys():
            yield obj


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests(path: Path) -> None:
    found = list(objects_of(path.read_text(encoding="utf-8")))
    assert found or path.name.startswith("values")
    for obj in found:
        validate(obj)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_objects_of_a_page(page: Path) -> None:
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    found = [obj for block in blocks for obj in objects_of(block)]
    assert found
    for obj in found:
        validate(obj)


@pytest.mark.parametrize(
    ("kind", "path", "value", "words"),
    [
        ("DeviceClass", ["spec", "extendedResource"], "nvidia.com/gpu", "extendedResource"),
        ("DeviceClass", ["spec", "selectors"], {"cel": {}}, "is not of type 'array'"),
        ("DaemonSet", ["spec", "template", "spec", "hostPid"], True, "hostPid"),
        ("ValidatingAdmissionPolicy", ["spec", "matchConditions", 0, "name"], 1, "1 is not"),
        ("ValidatingAdmissionPolicyBinding", ["spec", "policy"], "x", "policy"),
        ("ClusterRole", ["rules", 0, "verb"], ["get"], "verb"),
    ],
)
def test_other_types_are_refused(kind: str, path: list[Any], value: Any, words: str) -> None:
    """What the tests above would find."""
    obj = copy.deepcopy(next(o for o in rendered(SETS["dra"]) if o["kind"] == kind))
    validate(obj)
    place = obj
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(kubernetes_validate.ValidationError, match=words):
        validate(obj)


def test_unknown_version_is_refused() -> None:
    obj = one(rendered(SETS["dra"]), "DeviceClass", "mig.nvidia.com") | {"apiVersion": "x.io/v1"}
    with pytest.raises(kubernetes_validate.SchemaNotFoundError):
        validate(obj)
