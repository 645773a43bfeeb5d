# SPDX-License-Identifier: Apache-2.0
"""LabelService: the feature file and the labels of the node, written and removed."""

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
from gpuhook.vendors.nvidia.plugin import nvidia_part
from tests.unit.offering import T4

SNAPSHOT = NodeSnapshot(is_dump=True, parts=(nvidia_part.part(T4),))
LAUNCH = Launch(inventory="t4", node_name="node-1")


def configuration_for(path: Path, **own: Any) -> Configuration:
    return Configuration(flags=Flags(gfd=LabelFlags(output_file=str(path))), own=Own(**own))


def label(*configurations: Configuration, server: Any = None) -> None:
    """Apply the configurations in order, and end the service."""

    async def turns() -> None:
        labelling = LabelService(LAUNCH, server, Notifier(logger(), None))
        for configuration in configurations:
            resources = offered(T4, configuration).resources
            labelling.update(configuration, SNAPSHOT, resources)
            assert labelling._task is not None
            await labelling._task
        await labelling.end(configurations[-1])

    asyncio.run(turns())


def test_file_remains_unless_remove_labels_on_exit_is_set(tmp_path: Path) -> None:
    path = tmp_path / "features.d" / "gfd"
    label(configuration_for(path, labels=True))
    assert "nvidia.com/gpu.product=Tesla-T4\n" in path.read_text("utf-8")
    label(configuration_for(path, labels=True, remove_labels_on_exit=True))
    assert not path.exists()


def test_unused_file_is_removed(tmp_path: Path) -> None:
    """NFD would still read it after a change of the path or of `labels`."""
    old, new = tmp_path / "old", tmp_path / "new"
    label(configuration_for(old, labels=True), configuration_for(new, labels=True))
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    label(configuration_for(new, labels=True), configuration_for(new))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def node_labels(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the labels of the node; label changes apply to them."""
    labels: dict[str, str] = {}

    def set_labels(_server: ApiServer, name: str, wanted: dict[str, str | None]) -> dict[str, str]:
        assert name == "node-1"
        for key, value in wanted.items():
            if value is None:
                labels.pop(key)
            else:
                labels[key] = value
        return dict(labels)

    monkeypatch.setattr(node_label, "set_labels", set_labels)
    return labels


def test_node_labels_are_removed_when_label_node_is_disabled(
    tmp_path: Path, node_labels: dict[str, str]
) -> None:
    labelled = configuration_for(tmp_path / "gfd", label_node=True)
    label(labelled, server=object())
    assert node_labels["nvidia.com/gpu.product"] == "Tesla-T4"
    label(labelled, configuration_for(tmp_path / "gfd"), server=object())
    assert node_labels == {}


def test_label_node_without_an_api_server_is_a_warning_once(tmp_path: Path) -> None:
    labelled = configuration_for(tmp_path / "gfd", label_node=True)
    with capture_logs() as logs:
        label(labelled, replace(labelled, own=replace(labelled.own, accelerator_label=True)))
    assert [line["log_level"] for line in logs if "labelNode" in line["event"]] == ["warning"]


def test_labels_of_a_dump_are_not_written_to_the_default_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NFD of this machine would read that file."""
    written: list[str] = []
    monkeypatch.setattr(feature_file, "write", lambda path, _labels: written.append(path))
    label(Configuration(own=Own(labels=True)))
    assert written == []
