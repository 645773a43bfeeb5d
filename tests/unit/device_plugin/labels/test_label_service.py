# SPDX-License-Identifier: Apache-2.0
"""The labels that the plugin keeps: where they are, and when they go."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gpuhook.device_plugin.api_server import node_label
from gpuhook.device_plugin.api_server.client import ApiServer
from gpuhook.device_plugin.config.configuration import Configuration, Flags, LabelFlags
from gpuhook.device_plugin.config.gpuhook_section import Own
from gpuhook.device_plugin.config.launch_options import Launch
from gpuhook.device_plugin.labels import feature_file
from gpuhook.device_plugin.labels.label_service import LabelService
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.device_plugin.notifier import Notifier
from gpuhook.device_plugin.offer.resources import offered
from gpuhook.host.logs import logger
from tests.unit.offering import T4

LOOK = NodeSnapshot(T4, T4, is_dump=True)
LAUNCH = Launch(inventory="t4", node_name="node-1")


def configured(path: Path, **own: Any) -> Configuration:
    return Configuration(flags=Flags(gfd=LabelFlags(output_file=str(path))), own=Own(**own))


def kept(*configurations: Configuration, server: Any = None) -> None:
    """Keep the labels under one configuration after the other, and end."""

    async def turns() -> None:
        labelling = LabelService(LAUNCH, server, Notifier(logger(), None))
        for configuration in configurations:
            resources = offered(T4, configuration).resources
            labelling.update(configuration, LOOK, resources)
            assert labelling._task is not None
            await labelling._task
        await labelling.end(configurations[-1])

    asyncio.run(turns())


def test_the_file_stays_unless_it_is_to_go(tmp_path: Path) -> None:
    path = tmp_path / "features.d" / "gfd"
    kept(configured(path, labels=True))
    assert "nvidia.com/gpu.product=Tesla-T4\n" in path.read_text("utf-8")
    kept(configured(path, labels=True, remove_labels_on_exit=True))
    assert not path.exists()


def test_a_file_that_is_kept_no_more_goes(tmp_path: Path) -> None:
    """NFD would go on to read it: after a move, and when the labels are switched off."""
    old, new = tmp_path / "old", tmp_path / "new"
    kept(configured(old, labels=True), configured(new, labels=True))
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    kept(configured(new, labels=True), configured(new))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the labels of the node, which may be set."""
    labels: dict[str, str] = {}

    def set_labels(_server: ApiServer, name: str, wanted: dict[str, str | None]) -> None:
        assert name == "node-1"
        for key, value in wanted.items():
            if value is None:
                labels.pop(key)
            else:
                labels[key] = value

    monkeypatch.setattr(node_label, "set_labels", set_labels)
    return labels


def test_labels_of_the_node_go_when_they_are_kept_no_more(
    tmp_path: Path, node: dict[str, str]
) -> None:
    labelled = configured(tmp_path / "gfd", label_node=True)
    kept(labelled, server=object())
    assert node["nvidia.com/gpu.product"] == "Tesla-T4"
    kept(labelled, configured(tmp_path / "gfd"), server=object())
    assert node == {}


def test_a_node_that_cannot_be_labelled_is_told_once(tmp_path: Path) -> None:
    """labelNode needs an API server; without one it must not look as if it were done."""
    labelled = configured(tmp_path / "gfd", label_node=True)
    with capture_logs() as logs:
        kept(labelled, replace(labelled, own=replace(labelled.own, accelerator_label=True)))
    assert [line["log_level"] for line in logs if "labelNode" in line["event"]] == ["warning"]


def test_a_dump_is_no_label_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless another file is named, which this machine's feature discovery does not read."""
    written: list[str] = []
    monkeypatch.setattr(feature_file, "write", lambda path, _labels: written.append(path))
    kept(Configuration(own=Own(labels=True)))
    assert written == []
