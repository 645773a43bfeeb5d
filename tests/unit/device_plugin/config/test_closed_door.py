# SPDX-License-Identifier: Apache-2.0
"""The closed configuration of docs/sharing.md: its files and the DaemonSet agree."""

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

PAGE = ROOT / "docs/sharing.md"
TITLE = "### Allow only granted GPUs"
STRICT = {"acceptEnvWhenUnprivileged": False, "acceptVolumeMounts": True}


@pytest.fixture
def shown() -> tuple[str, str]:
    """Return the node's settings and the plugin's configuration of the section."""
    section = PAGE.read_text("utf-8").partition(TITLE)[2].partition("\n### ")[0]
    node, plugin = BLOCK.findall(section)
    return node, plugin


def chosen(spec: dict[str, Any], document: dict[str, object]) -> parse.Source | None:
    """Return the source that a runtime with these settings uses."""
    found = settings.from_document(document)
    sources = parse.sources(spec, VOCABULARY, found.annotation_prefixes)
    return policy.judge(sources, spec, found).chosen


def test_the_plugin_gets_its_own_gpus(shown: tuple[str, str]) -> None:
    """The mount applies, since a container without the capability cannot use the variable."""
    spec = asking()
    assert not policy.privileged(spec)
    source = chosen(spec, yaml.safe_load(shown[0]))
    assert source is not None
    assert (source.kind, source.names) == (parse.MOUNTS, ["all"])


def test_on_an_open_node_the_variable_counts() -> None:
    source = chosen(asking(), {})
    assert source is not None
    assert (source.kind, source.names) == (parse.ENV, ["all"])


def test_the_files_strategy_counts(shown: tuple[str, str]) -> None:
    """No variable of the DaemonSet overrides it."""
    said = read_overrides({}, dict(one.split("=", 1) for one in asking()["process"]["env"]))
    reading = config_reader.read(shown[1].encode(), "default", said.overrides)
    assert reading.findings == ()
    assert reading.configuration is not None
    assert reading.configuration.flags.plugin.device_list_strategy == ("volume-mounts",)


def test_a_pod_that_asks_by_itself_gets_nothing(shown: tuple[str, str]) -> None:
    all_of_them = {"cdi.k8s.io/x": "nvidia.com/gpu=all"}
    document = yaml.safe_load(shown[0])
    assert document == {"request": STRICT}
    for held in ({}, cri_annotations.crio(all_of_them)):
        env = ["NVIDIA_VISIBLE_DEVICES=all"]
        assert chosen({"process": {"env": env}, "annotations": held}, document) is None
    given = cri_annotations.crio({}, all_of_them)
    assert chosen({"annotations": given}, document) is not None
