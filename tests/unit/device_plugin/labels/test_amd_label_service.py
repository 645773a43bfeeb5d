# SPDX-License-Identifier: Apache-2.0
"""LabelService on nodes with AMD GPUs: stale labels, changes of the node, a vendor that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gpuhook.device_plugin.api_server.client import ApiServer
from gpuhook.device_plugin.config.configuration import Configuration, Flags, LabelFlags
from gpuhook.device_plugin.config.gpuhook_section import Own
from gpuhook.device_plugin.config.launch_options import Launch
from gpuhook.device_plugin.labels import label_service
from gpuhook.device_plugin.labels.label_service import LabelService
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.device_plugin.notifier import Notifier
from gpuhook.device_plugin.offer.resources import offered
from gpuhook.host.logs import logger
from gpuhook.vendors.amd.amd_vendor import AmdVendor
from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
from gpuhook.vendors.nvidia.plugin import nvidia_part
from gpuhook.vendors.vendor_part import VendorPart
from tests.unit.api_stand_in import Asked, serving
from tests.unit.offering import T4
from tests.unit.vendors.amd.labels.test_amd_labels import mi300x

Labels = dict[str, str]
# What AMD's labeller leaves on the node of an earlier mode, and labels of others.
STALE = {
    "amd.com/gpu.vram": "64G",
    "beta.amd.com/gpu.vram.64G": "8",
    "beta.amd.com/gpu.cu-count.38": "64",
    "amd.com/gpu.cu-count.20": "3",
    "beta.amd.com/gpu.firmware.MEC.fw.139": "8",
    "amd.com/gpu-W6800.replicas": "4",
}
OTHERS = {
    "amd.com/gpu": "true",
    "amd.com/gpu.mode": "container",
    "amd.com/compute-memory-partition": "spx_nps1",
    "dcm.amd.com/gpu-config-profile": "cpx",
    "beta.amd.com/owner": "me",
    "nvidia.com/gpu.product": "of-another-labeller",
    "kubernetes.io/hostname": "node-1",
}
OFF = Configuration(own=Own(labels=False))
ON = Configuration(own=Own(label_node=True))


class NodeObject:
    """The labels of the node in an API server."""

    def __init__(self, server: ApiServer, labels: Labels) -> None:
        self.server = server
        self.labels = labels
        self.verbs: list[str] = []

    def answer(self, asked: Asked) -> None:
        """Apply a merge patch, and return the node, as the API server does."""
        self.verbs.append(asked.command)
        for name, value in asked.body["metadata"]["labels"].items():
            self.labels |= {name: value or ""}
            if value is None:
                del self.labels[name]
        asked.reply({"metadata": {"labels": self.labels}})

    def of(self, prefix: str) -> Labels:
        return {name: value for name, value in self.labels.items() if name.startswith(prefix)}


@pytest.fixture
def node_object(tmp_path: Path) -> Iterator[NodeObject]:
    with serving(tmp_path) as stand_in:
        made = NodeObject(ApiServer(stand_in.access), STALE | OTHERS)
        stand_in.otherwise = made.answer
        yield made


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_service, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(label_service, "_LONGEST_PAUSE", 0.001)


def amd(node: AmdNode, **part: Any) -> NodeSnapshot:
    return NodeSnapshot(is_dump=True, parts=(VendorPart("amd.com", node, **part),))


def mixed(node: AmdNode) -> NodeSnapshot:
    return NodeSnapshot(is_dump=True, parts=(nvidia_part.part(T4), VendorPart("amd.com", node)))


class Turns:
    """Label the node in turns, as the plugin does."""

    def __init__(self, server: ApiServer | None) -> None:
        launch = Launch(inventory="mixed", node_name="node-1")
        self.service = LabelService(launch, server, Notifier(logger(), None))

    async def turn(
        self, snapshot: NodeSnapshot, configuration: Configuration = ON, until: Any = None
    ) -> None:
        """Label the node of a snapshot until it is labelled, or until `until` is true."""
        first, *others = snapshot.inventories
        offer = offered(first, configuration, *others)
        self.service.update(configuration, snapshot, offer.resources)
        assert self.service._task is not None
        while not self.service._task.done() and not (until and until()):
            await asyncio.sleep(0.005)


def run(scenario: Any, limit: float = 60) -> None:
    async def limited() -> None:
        await asyncio.wait_for(scenario(), limit)

    asyncio.run(limited())


def test_stale_labels_of_amds_labeller_are_removed(node_object: NodeObject) -> None:
    """Only names of known kinds; no permission but patch is needed."""

    async def scenario() -> None:
        await Turns(node_object.server).turn(amd(mi300x()))

    run(scenario)
    assert node_object.labels.items() >= OTHERS.items()
    assert node_object.labels["amd.com/gpu.vram"] == "192G"
    assert not (STALE.keys() - {"amd.com/gpu.vram"}) & node_object.labels.keys()
    assert node_object.of("amd.com/gpu.count") == {"amd.com/gpu.count": "8"}
    assert node_object.verbs == ["PATCH", "PATCH"]


def test_labels_follow_the_modes_of_the_gpus(node_object: NodeObject) -> None:
    async def scenario() -> None:
        turns = Turns(node_object.server)
        await turns.turn(amd(mi300x()))
        assert node_object.labels["beta.amd.com/gpu.cu-count.304"] == "8"
        await turns.turn(amd(mi300x(8)))
        assert node_object.of("beta.amd.com/gpu.cu-count") == {
            "beta.amd.com/gpu.cu-count": "38",
            "beta.amd.com/gpu.cu-count.38": "64",
        }
        await turns.turn(amd(mi300x(8), trouble="the driver amdgpu is not loaded"))

    run(scenario)
    left = node_object.of("amd.com/") | node_object.of("beta.amd.com/")
    assert left == {name: value for name, value in OTHERS.items() if name in left}
    assert len(left) == 4


def test_labels_of_both_vendors(node_object: NodeObject) -> None:
    """Labels of NVIDIA's feature discovery, which may be running, are not removed."""
    node_object.labels["nvidia.com/gpu.family"] = "pascal"
    node_object.labels["nvidia.com/mig.strategy"] = "mixed"

    async def scenario() -> None:
        await Turns(node_object.server).turn(mixed(mi300x()))

    run(scenario)
    assert node_object.labels["nvidia.com/gpu.product"] == "Tesla-T4"
    assert node_object.labels["nvidia.com/mig.strategy"] == "mixed"
    assert node_object.labels["amd.com/gpu.product-name"] == "AMD_Instinct_MI300X_OAM"


def test_labels_of_a_vendor_that_fails_remain(
    node_object: NodeObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are written again when it answers; the other vendor's are updated meanwhile."""
    answers: list[Callable[..., Any]] = [AmdVendor.labels]
    real = AmdVendor.labels

    def labels(*arguments: Any) -> Any:
        return answers[-1](*arguments)

    def fails(*_: Any) -> Any:
        raise OSError("EPERM")

    monkeypatch.setattr(AmdVendor, "labels", labels)

    async def scenario() -> None:
        turns = Turns(node_object.server)
        await turns.turn(mixed(mi300x()))
        answers.append(fails)
        accelerator = Configuration(own=Own(label_node=True, accelerator_label=True))
        await turns.turn(mixed(mi300x(8)), accelerator, lambda: "accelerator" in node_object.labels)
        assert node_object.labels["beta.amd.com/gpu.vram.192G"] == "8"
        answers.append(real)
        while "beta.amd.com/gpu.vram.24G" not in node_object.labels:
            await asyncio.sleep(0.005)

    with capture_logs() as logs:
        run(scenario)
    assert [line["cause"] for line in logs if "not updated" in line["event"]] == ["EPERM"]
    assert "beta.amd.com/gpu.vram.192G" not in node_object.labels


def test_own_labels_only_are_removed_when_label_node_is_disabled(node_object: NodeObject) -> None:
    async def scenario() -> None:
        turns = Turns(node_object.server)
        await turns.turn(amd(mi300x()))
        node_object.labels["beta.amd.com/gpu.vram.64G"] = "8"
        await turns.turn(amd(mi300x()), OFF)

    run(scenario)
    left = node_object.of("amd.com/gpu.") | node_object.of("beta.amd.com/gpu")
    assert left == {"amd.com/gpu.mode": "container", "beta.amd.com/gpu.vram.64G": "8"}


def test_value_without_a_valid_character_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "features.d" / "gfd"
    flags = Flags(gfd=LabelFlags(output_file=str(path)))
    first, second = (
        Configuration(flags=flags, own=Own(labels=True, accelerator_label=choice))
        for choice in (False, True)
    )
    bad = mi300x()
    bad = replace(bad, gpus=tuple(replace(gpu, name="()") for gpu in bad.gpus))

    async def scenario() -> None:
        turns = Turns(None)
        await turns.turn(amd(bad), first)
        await turns.turn(amd(bad), second)

    with capture_logs() as logs:
        run(scenario)
    warnings = [line["event"] for line in logs if line["log_level"] == "warning"]
    assert warnings == [
        "the label amd.com/gpu.product-name is omitted: '()' has no valid character"
    ]
    assert "amd.com/gpu.vram=192G\n" in path.read_text("utf-8")
