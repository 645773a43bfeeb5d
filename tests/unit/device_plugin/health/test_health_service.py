# SPDX-License-Identifier: Apache-2.0
"""The health of GPUs, kept up to date through the driver's comings and goings."""

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
from gpuhook.device_plugin.health import recovery_evidence as health_evidence
from gpuhook.device_plugin.health.health_marks import HealthMark
from gpuhook.device_plugin.health.health_service import HealthService
from gpuhook.device_plugin.health.nvml_watcher import (
    Actions,
    Message,
    WatchFailed,
    WatchStarted,
    XidReport,
)
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.device_plugin.notifier import Notifier
from gpuhook.device_plugin.triggers import Reason, Triggers
from gpuhook.errors import fault
from gpuhook.host.logs import logger
from gpuhook.vendors.nvidia.inventory import dump_file

NODE = dump_file.load("t4")
UUID = str(NODE.gpus[0].uuid)
AWAY = NodeSnapshot(trouble=fault("GH1204", path="libnvidia-ml.so.1", reason="Driver Not Loaded"))


def look(version: str = "580.1") -> NodeSnapshot:
    """Return a look at a driver of this version."""
    seen = replace(NODE, driver=replace(NODE.driver, nvml="/lib/nvml", module_version=version))
    return NodeSnapshot(seen, seen)


class Watch:
    """A fake Watcher; the test posts messages."""

    made: ClassVar[list[Watch]] = []

    def __init__(self, _opened: object, _action: object, post: Callable[[Message], None]) -> None:
        self.post = post
        self.calls: list[str] = []
        Watch.made.append(self)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_arguments: self.calls.append(name)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HealthService:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(health_service, "Watcher", Watch)
    monkeypatch.setattr(health_service, "poster", lambda _loop, take: take)
    monkeypatch.setattr(Watch, "made", [])
    news = Notifier(logger())
    return HealthService(Health(), str(tmp_path), Triggers(), news, lambda _uuid, _xid: None)


def looked(made: HealthService, *looks: NodeSnapshot) -> None:
    """Let it take these looks, one after the other."""
    loop = cast("asyncio.AbstractEventLoop", None)  # the stand-in posts without one
    for one in looks:
        made.update(one, loop)


def test_watch_of_a_driver_that_is_back_begins_at_once(made: HealthService) -> None:
    """It may be in the middle of a pause of a minute, and hear of no XID."""
    looked(made, look(), look())
    (watch,) = Watch.made
    assert "restart" not in watch.calls
    looked(made, AWAY, look())
    assert "restart" in watch.calls
    assert Watch.made == [watch]


def test_upgraded_driver_has_a_watch_of_its_own(made: HealthService) -> None:
    looked(made, look(), AWAY, look("590.1"))
    old, new = Watch.made
    assert "stop" in old.calls
    assert new.calls == ["start"]


def test_driver_that_is_watched_again_is_looked_at(made: HealthService) -> None:
    """The next look at what is missing may be a minute away."""
    looked(made, look(), AWAY)
    (watch,) = Watch.made
    watch.post(WatchFailed("it does not answer", 1, 1.0))
    made._triggers._pulled.clear()
    watch.post(WatchStarted())
    assert Reason.NODE in made._triggers._pulled
    made._triggers._pulled.clear()
    watch.post(WatchStarted())  # it was set aside for the look
    assert Reason.NODE not in made._triggers._pulled


def test_what_stays_so_is_told_once(made: HealthService) -> None:
    """The watch fails once a minute while the driver is missing, and restarts for each snapshot."""
    looked(made, look())
    (watch,) = Watch.made
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


def test_gpu_is_healthy_again_once_and_when_nothing_is_left(made: HealthService) -> None:
    looked(made, look())
    label = f"GPU 0 ({UUID})"
    with capture_logs() as lines:
        made.on_message(XidReport(UUID, 79, action="reset"))
        made.on_message(Actions({UUID: "reset"}))
        made._health._mark(HealthMark(UUID, "absent", "it is not there", by_driver=False), 1.0)
        made.on_message(Actions({UUID: "none"}))
        health_marks.request_clear(UUID)
        made.on_poll()
    no_action = "the driver requires no action"
    told = [line["event"] for line in lines if line["log_level"] == "info"]
    assert told == [
        f"{label}: no longer marked by xid 79, action, still unhealthy: {no_action}",
        f"{label}: healthy again after absent: cleared by the operator",
    ]


def test_last_words_of_a_replaced_driver_mark_nobody(made: HealthService) -> None:
    looked(made, look(), look("590.1"))
    old, new = Watch.made
    version = made._health.version
    old.post(WatchFailed("the library is gone", 1, 1.0, {UUID: "it is lost"}))
    old.post(XidReport(UUID, 79))
    assert made._health.version == version
    new.post(XidReport(UUID, 79))
    assert made._health.version > version


@pytest.mark.parametrize(
    ("bus_id", "name"),
    [
        ("00000000:00:1E.0", "0000:00:1e.0"),
        ("00010000:17:00.0", "10000:17:00.0"),
        ("garbage", "garbage:"),
    ],
)
def test_bus_id_as_the_kernel_writes_it(bus_id: str, name: str) -> None:
    assert health_evidence._sysfs_name(bus_id) == name
    gpu = replace(NODE.gpus[0], pci_bus_id=bus_id + "\0")
    assert health_evidence.read([gpu]).slots == {}


def test_marks_that_could_not_be_written_are_written_later(
    made: HealthService, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = health_marks.write

    def full(_marks: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(health_marks, "write", full)
    looked(made, look())
    made.on_message(XidReport(UUID, 79))
    monkeypatch.setattr(health_marks, "write", write)
    assert health_marks.read() == ()
    made.on_poll()
    assert [mark.gpu for mark in health_marks.read()] == [UUID]


def test_dump_has_nothing_to_do_with_the_marks_of_this_machine(
    made: HealthService, tmp_path: Path
) -> None:
    """The machine's own plugin may run: its marks stay, and what is asked of it."""
    looked(made, look())
    made.on_message(XidReport(UUID, 79))
    health_marks.request_clear("all")
    before = health_marks.read()
    news, lost = Notifier(logger()), dump_file.load("lost-gpu")
    of_a_dump = HealthService(
        Health(), str(tmp_path), Triggers(), news, lambda _uuid, _xid: None, is_this_machine=False
    )
    looked(of_a_dump, NodeSnapshot(lost, lost, is_dump=True))
    of_a_dump.on_poll()
    assert of_a_dump._health.marks
    assert not {mark.gpu for mark in of_a_dump._health.marks} & {UUID}
    assert health_marks.read() == before
    assert list(health_marks.clear_requests()) == ["all"]
