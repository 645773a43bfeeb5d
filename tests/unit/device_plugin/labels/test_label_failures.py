# SPDX-License-Identifier: Apache-2.0
"""LabelService with an API server that fails, refuses or hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.launch_options import Launch
from gpuhook.device_plugin.labels import label_service
from gpuhook.device_plugin.labels.label_service import LabelService
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.device_plugin.notifier import Notifier
from gpuhook.device_plugin.offer import resources
from gpuhook.errors import fault
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.plugin import nvidia_part

NODE = dump_file.load("t4")
SNAPSHOT = NodeSnapshot(is_dump=True, parts=(nvidia_part.part(NODE),))


class Log:
    """Counts warnings."""

    def __init__(self) -> None:
        self.warnings = 0

    def warning(self, _event: str, **_fields: object) -> None:
        self.warnings += 1


class Server:
    """An API server that stores labels, or raises the next one of `errors`."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.labels: dict[str, str | None] = {}
        self.calls = 0

    def patch(self, _path: str, body: dict[str, Any], _purpose: object) -> dict[str, Any]:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        self.labels.update(body["metadata"]["labels"])
        return {"metadata": {"labels": self.labels}}


def configuration(path: Path, **own: bool) -> Configuration:
    base = Configuration()
    gfd = replace(base.flags.gfd, output_file=str(path))
    return replace(base, flags=replace(base.flags, gfd=gfd), own=replace(base.own, **own))  # type: ignore[arg-type]


def run(server: Server, log: Log, scenario: Callable[[LabelService], Awaitable[None]]) -> None:
    async def ran() -> None:
        launch = Launch(node_name="n1", inventory="t4")
        service = LabelService(launch, server, Notifier(log))  # type: ignore[arg-type]
        await asyncio.wait_for(scenario(service), 30)

    asyncio.run(ran())


def update(service: LabelService, wanted: Configuration) -> None:
    service.update(wanted, SNAPSHOT, resources.offered(NODE, wanted).resources)


async def until(wanted: Callable[[], object]) -> None:
    while not wanted():
        await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_service, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(label_service, "_LONGEST_PAUSE", 0.001)


def test_failed_labels_are_retried_without_another_turn(tmp_path: Path) -> None:
    trouble = fault("GH1862", where="api", reason="Connection refused")
    server, log = Server(trouble, trouble, trouble), Log()

    async def scenario(service: LabelService) -> None:
        update(service, configuration(tmp_path / "gfd", label_node=True))
        await until(lambda: server.labels)

    run(server, log, scenario)
    assert server.labels["nvidia.com/gpu.count"] == "1"
    assert log.warnings == 1


def test_forbidden_labels_are_not_retried(tmp_path: Path) -> None:
    forbidden = fault("GH1863", verb="patch", resource="nodes", feature="labels", group="")
    server, log = Server(forbidden), Log()

    async def scenario(service: LabelService) -> None:
        wanted = configuration(tmp_path / "gfd", label_node=True)
        for _ in range(2):
            update(service, wanted)
            assert service._task is not None
            await service._task

    run(server, log, scenario)
    assert (server.calls, log.warnings) == (1, 1)


def test_hanging_api_server_blocks_neither_file_nor_end(tmp_path: Path) -> None:
    gate = threading.Event()
    server = Server()
    server.patch = lambda *_: gate.wait()  # type: ignore[assignment,method-assign]

    async def scenario(service: LabelService) -> None:
        update(service, configuration(tmp_path / "gfd", labels=True, label_node=True))
        await until((tmp_path / "gfd").exists)
        await service.end(configuration(tmp_path / "gfd"))

    run(server, Log(), scenario)
    assert not gate.is_set()
    gate.set()


def test_moved_file_is_removed_from_its_old_path(tmp_path: Path) -> None:
    async def scenario(service: LabelService) -> None:
        update(service, configuration(tmp_path / "old", labels=True))
        await until((tmp_path / "old").exists)
        update(service, configuration(tmp_path / "new", labels=True))
        await until((tmp_path / "new").exists)

    run(Server(), Log(), scenario)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_labels_are_removed_at_the_end_if_configured(tmp_path: Path) -> None:
    server = Server()
    wanted = configuration(
        tmp_path / "gfd", labels=True, label_node=True, remove_labels_on_exit=True
    )

    async def scenario(service: LabelService) -> None:
        update(service, wanted)
        await until(lambda: service._node_labels)
        await service.end(wanted)

    run(server, Log(), scenario)
    assert not (tmp_path / "gfd").exists()
    assert set(server.labels.values()) == {None}
