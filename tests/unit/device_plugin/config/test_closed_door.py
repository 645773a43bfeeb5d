# SPDX-License-Identifier: Apache-2.0
"""The closed configuration of docs/how-to/share-a-gpu.md: all its parts match."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gpuhook.device_plugin.config import config_reader
from gpuhook.device_plugin.config.overrides import read_overrides
from gpuhook.host.hot import settings
from gpuhook.request import parse, policy
from gpuhook.vendors.nvidia.hot.vocabulary import VOCABULARY
from tests import cri_annotations
from tests.daemon_set import asking
from tests.unit.docs.test_documented import BLOCK, ROOT

PAGE = ROOT / "docs/how-to/share-a-gpu.md"
TITLE = "## Allow only granted GPUs"
STRICT = {"acceptEnvWhenUnprivileged": False, "acceptVolumeMounts": True}


@pytest.fixture
def documented() -> tuple[str, str]:
    """Return the node's settings and the plugin's configuration of the section."""
    section = PAGE.read_text("utf-8").partition(TITLE)[2].partition("\n## ")[0]
    node, plugin = BLOCK.findall(section)
    return node, plugin


def source_of(spec: dict[str, Any], document: dict[str, object]) -> parse.Source | None:
    """Return the source that a runtime with these settings uses."""
    found = settings.from_document(document)
    sources = parse.sources(spec, VOCABULARY, found.annotation_prefixes)
    return policy.judge(sources, spec, found).chosen


def test_plugin_gets_all_gpus_by_its_mount(documented: tuple[str, str]) -> None:
    """A container without the capability cannot use the variable."""
    spec = asking()
    assert not policy.privileged(spec)
    source = source_of(spec, yaml.safe_load(documented[0]))
    assert source is not None
    assert (source.kind, source.names) == (parse.MOUNTS, ["all"])


def test_variable_of_the_plugin_applies_with_default_settings() -> None:
    source = source_of(asking(), {})
    assert source is not None
    assert (source.kind, source.names) == (parse.ENV, ["all"])


def test_strategy_of_the_file_applies(documented: tuple[str, str]) -> None:
    """No variable of the DaemonSet overrides it."""
    overrides = read_overrides({}, dict(one.split("=", 1) for one in asking()["process"]["env"]))
    reading = config_reader.read(documented[1].encode(), "default", overrides.overrides)
    assert reading.findings == ()
    assert reading.configuration is not None
    assert reading.configuration.flags.plugin.device_list_strategy == ("volume-mounts",)


def test_request_of_an_ungranted_pod_is_refused(documented: tuple[str, str]) -> None:
    all_of_them = {"cdi.k8s.io/x": "nvidia.com/gpu=all"}
    document = yaml.safe_load(documented[0])
    assert document == {"request": STRICT}
    for pod_annotations in ({}, cri_annotations.crio(all_of_them)):
        env = ["NVIDIA_VISIBLE_DEVICES=all"]
        assert (
            source_of({"process": {"env": env}, "annotations": pod_annotations}, document) is None
        )
    given = cri_annotations.crio({}, all_of_them)
    assert source_of({"annotations": given}, document) is not None
