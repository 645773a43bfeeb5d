# SPDX-License-Identifier: Apache-2.0
"""HealthService: the NVML watch and the marks through restarts and upgrades of the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, cast

import pytest
from structlog.testing import capture_logs

from gpuhook.device_plugin.config.gpuhook_section import Health
from gpuhook.device_plugin.health import health_marks, health_service
from gpuhook.device_plugin.health.health_marks import HealthMark
from gpuhook.device_plugin.health.health_service import HealthService
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.device_plugin.notifier import Notifier
from gpuhook.device_plugin.triggers import Reason, Triggers
from gpuhook.errors import fault
from gpuhook.host.logs import logger
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import Driver, Node
from gpuhook.vendors.nvidia.plugin import nvidia_part
from gpuhook.vendors.nvidia.plugin.nvml_watcher import (
    Actions,
    Message,
    WatchFailed,
    WatchStarted,
    XidReport,
)

NODE = dump_file.load("t4")
UUID = str(NODE.gpus[0].uuid)
NO_ANSWER = fault("GH1204", path="libnvidia-ml.so.1", reason="Driver Not Loaded")
AWAY = NodeSnapshot(parts=(replace(nvidia_part.part(Node(Driver())), error=NO_ANSWER),))


def snapshot(version: str = "580.1") -> NodeSnapshot:
    """Return a snapshot of a node with this driver version."""
    seen = replace(NODE, driver=replace(NODE.driver, nvml="/lib/nvml", module_version=version))
    return NodeSnapshot(parts=(nvidia_part.part(seen),))


class Watch:
    """A fake Watcher; the test posts messages."""

    instances: ClassVar[list[Watch]] = []

    def __init__(self, _opened: object, _action: object, post: Callable[[Message], None]) -> None:
        self.post = post
        self.calls: list[str] = []
        Watch.instances.append(self)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_arguments: self.calls.append(name)


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HealthService:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(health_service, "Watcher", Watch)
    monkeypatch.setattr(health_service, "poster", lambda _loop, take: take)
    monkeypatch.setattr(Watch, "instances", [])
    news = Notifier(logger())
    return HealthService(Health(), str(tmp_path), Triggers(), news, lambda _uuid, _xid: None)


def update(service: HealthService, *looks: NodeSnapshot) -> None:
    """Pass these snapshots to the service, in order."""
    loop = cast("asyncio.AbstractEventLoop", None)  # the replaced poster needs no loop
    for one in looks:
        service.update(one, loop)


def test_watch_restarts_when_the_driver_is_back(service: HealthService) -> None:
    """The watch may be in a pause of a minute, and would miss XIDs."""
    update(service, snapshot(), snapshot())
    (watch,) = Watch.instances
    assert "restart" not in watch.calls
    update(service, AWAY, snapshot())
    assert "restart" in watch.calls
    assert Watch.instances == [watch]


def test_upgraded_driver_gets_a_new_watch(service: HealthService) -> None:
    update(service, snapshot(), AWAY, snapshot("590.1"))
    old, new = Watch.instances
    assert "stop" in old.calls
    assert new.calls == ["start"]


def test_restarted_watch_triggers_a_snapshot(service: HealthService) -> None:
    """The next poll may be a minute away."""
    update(service, snapshot(), AWAY)
    (watch,) = Watch.instances
    watch.post(WatchFailed("it does not answer", 1, 1.0))
    service._triggers._pulled.clear()
    watch.post(WatchStarted())
    assert Reason.NODE in service._triggers._pulled
    service._triggers._pulled.clear()
    watch.post(WatchStarted())  # it was suspended for the snapshot
    assert Reason.NODE not in service._triggers._pulled


def test_repeated_messages_are_logged_once(service: HealthService) -> None:
    """The watch fails once a minute while the driver is missing, and restarts for each snapshot."""
    update(service, snapshot())
    (watch,) = Watch.instances
    with capture_logs() as lines:
        for times, reason in enumerate(["stopped", "not loaded", "not loaded"], 1):
            watch.post(WatchFailed(reason, times, 60.0))
        for _ in range(2):
            watch.post(WatchStarted({UUID: "it has none"}))
    assert [(line["event"], line.get("cause")) for line in lines] == [
        ("no XIDs are reported: stopped", None),
        ("no events yet", "not loaded"),
        ("no events of a GPU", "it has none"),
    ]


def test_gpu_is_reported_healthy_when_its_last_mark_ends(service: HealthService) -> None:
    update(service, snapshot())
    label = f"GPU 0 ({UUID})"
    with capture_logs() as lines:
        service.on_message(XidReport(UUID, 79, action="reset"))
        service.on_message(Actions({UUID: "reset"}))
        service._health._mark(HealthMark(UUID, "absent", "it is not there", by_driver=False), 1.0)
        service.on_message(Actions({UUID: "none"}))
        health_marks.request_clear(UUID)
        service.on_poll()
    no_action = "the driver requires no action"
    events = [line["event"] for line in lines if line["log_level"] == "info"]
    assert events == [
        f"{label}: no longer marked by xid 79, action, still unhealthy: {no_action}",
        f"{label}: healthy again after absent: cleared by the operator",
    ]


def test_messages_of_a_replaced_watch_are_ignored(service: HealthService) -> None:
    update(service, snapshot(), snapshot("590.1"))
    old, new = Watch.instances
    version = service._health.version
    old.post(WatchFailed("the library is gone", 1, 1.0, {UUID: "it is lost"}))
    old.post(XidReport(UUID, 79))
    assert service._health.version == version
    new.post(XidReport(UUID, 79))
    assert service._health.version > version


def test_failed_write_of_marks_is_retried(
    service: HealthService, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = health_marks.write

    def full(_marks: object, _service: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(health_marks, "write", full)
    update(service, snapshot())
    service.on_message(XidReport(UUID, 79))
    monkeypatch.setattr(health_marks, "write", write)
    assert health_marks.read() == ()
    service.on_poll()
    assert [mark.gpu for mark in health_marks.read()] == [UUID]


def test_dump_neither_reads_nor_writes_marks_of_this_machine(
    service: HealthService, tmp_path: Path
) -> None:
    """The plugin of this machine may run: its marks and clear requests remain."""
    update(service, snapshot())
    service.on_message(XidReport(UUID, 79))
    health_marks.request_clear("all")
    before = health_marks.read()
    news, lost = Notifier(logger()), dump_file.load("lost-gpu")
    dump_service = HealthService(
        Health(), str(tmp_path), Triggers(), news, lambda _uuid, _xid: None, is_this_machine=False
    )
    update(dump_service, NodeSnapshot(is_dump=True, parts=(nvidia_part.part(lost),)))
    dump_service.on_poll()
    assert dump_service._health.marks
    assert not {mark.gpu for mark in dump_service._health.marks} & {UUID}
    assert health_marks.read() == before
    assert list(health_marks.clear_requests()) == ["all"]


def test_each_service_has_its_own_marks_and_requests(
    service: HealthService, tmp_path: Path
) -> None:
    """A device plugin and a DRA driver may run on one node."""
    news = Notifier(logger())
    other = HealthService(
        Health(), str(tmp_path), Triggers(), news, lambda *_: None, service=health_marks.DRA
    )
    for one in (service, other):
        update(one, snapshot())
    other.on_message(XidReport(UUID, 79))
    assert (health_marks.read(), len(health_marks.read(health_marks.DRA))) == ((), 1)
    service.on_message(XidReport(UUID, 79))
    health_marks.request_clear(UUID)
    service.on_poll()
    assert list(health_marks.clear_requests(health_marks.DRA)) == [UUID]
    assert len(health_marks.read(health_marks.DRA)) == 1
    other.on_poll()
    assert health_marks.clear_requests(health_marks.DRA) == {}
    assert health_marks.read(health_marks.DRA) == ()


def test_trouble_has_the_time_of_the_first_event(
    service: HealthService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated XID renews the mark; the time of a taint must not change."""
    update(service, snapshot())
    for now in (100.0, 200.0):
        monkeypatch.setattr("time.time", lambda now=now: now)
        service.on_message(XidReport(UUID, 79))
    (mark,) = service._health.marks
    assert (mark.first, mark.since) == (100.0, 200.0)
    (stored,) = health_marks.read()
    assert (stored.first, stored.since) == (100.0, 200.0)
