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
from gpuhook.device_plugin.health import health_marks_file
from gpuhook.device_plugin.health import recovery_evidence as health_evidence
from gpuhook.device_plugin.health.health_marks import HealthMark
from gpuhook.device_plugin.health.nvml_watcher import (
    Actions,
    Failed,
    Message,
    NvmlWatching,
    Reported,
)
from gpuhook.device_plugin.node_snapshot import Look
from gpuhook.device_plugin.notifier import News
from gpuhook.device_plugin.services import health_service
from gpuhook.device_plugin.services.health_service import Monitoring
from gpuhook.device_plugin.triggers import Reason, Triggers
from gpuhook.errors import fault
from gpuhook.host.logs import logger
from gpuhook.vendors.nvidia.inventory import dump_file

NODE = dump_file.load("t4")
UUID = str(NODE.gpus[0].uuid)
AWAY = Look(trouble=fault("GH1204", path="libnvidia-ml.so.1", reason="Driver Not Loaded"))


def look(version: str = "580.1") -> Look:
    """Return a look at a driver of this version."""
    seen = replace(NODE, driver=replace(NODE.driver, nvml="/lib/nvml", module_version=version))
    return Look(seen, seen)


class Watch:
    """Stands in for a Watcher; the test posts."""

    made: ClassVar[list[Watch]] = []

    def __init__(self, _source: object, post: Callable[[Message], None]) -> None:
        self.post = post
        self.calls: list[str] = []
        Watch.made.append(self)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_arguments: self.calls.append(name)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Monitoring:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(health_service, "Watcher", Watch)
    monkeypatch.setattr(health_service, "poster", lambda _loop, take: take)
    monkeypatch.setattr(Watch, "made", [])
    news = News(logger())
    return Monitoring(Health(), str(tmp_path), Triggers(), news, lambda _uuid, _xid: None)


def looked(made: Monitoring, *looks: Look) -> None:
    """Let it take these looks, one after the other."""
    loop = cast("asyncio.AbstractEventLoop", None)  # the stand-in posts without one
    for one in looks:
        made.looked(one, loop)


def test_watch_of_a_driver_that_is_back_begins_at_once(made: Monitoring) -> None:
    """It may be in the middle of a pause of a minute, and hear of no XID."""
    looked(made, look(), look())
    (watch,) = Watch.made
    assert "restart" not in watch.calls
    looked(made, AWAY, look())
    assert "restart" in watch.calls
    assert Watch.made == [watch]


def test_upgraded_driver_has_a_watch_of_its_own(made: Monitoring) -> None:
    looked(made, look(), AWAY, look("590.1"))
    old, new = Watch.made
    assert "stop" in old.calls
    assert new.calls == ["start"]


def test_driver_that_is_watched_again_is_looked_at(made: Monitoring) -> None:
    """The next look at what is missing may be a minute away."""
    looked(made, look(), AWAY)
    (watch,) = Watch.made
    watch.post(Failed("it does not answer", 1, 1.0))
    made._triggers._pulled.clear()
    watch.post(NvmlWatching())
    assert Reason.NODE in made._triggers._pulled
    made._triggers._pulled.clear()
    watch.post(NvmlWatching())  # it was set aside for the look
    assert Reason.NODE not in made._triggers._pulled


def test_what_stays_so_is_told_once(made: Monitoring) -> None:
    """The watch fails once a minute while a driver is gone, and begins anew for each look."""
    looked(made, look())
    (watch,) = Watch.made
    with capture_logs() as lines:
        for times, reason in enumerate(["stopped", "not loaded", "not loaded"], 1):
            watch.post(Failed(reason, times, 60.0))
        for _ in range(2):
            watch.post(NvmlWatching({UUID: "it has none"}))
    assert [(line["event"], line.get("cause")) for line in lines] == [
        ("no XID is heard of: stopped", None),
        ("no events yet", "not loaded"),
        ("no events of a GPU", "it has none"),
    ]


def test_gpu_is_healthy_again_once_and_when_nothing_is_left(made: Monitoring) -> None:
    looked(made, look())
    label = f"GPU 0 ({UUID})"
    with capture_logs() as lines:
        made.heard(Reported(UUID, 79, action="reset"))
        made.heard(Actions({UUID: "reset"}))
        made._book._mark(HealthMark(UUID, "absent", "it is not there", by_driver=False), 1.0)
        made.heard(Actions({UUID: "none"}))
        health_marks_file.ask_to_clear(UUID)
        made.polled()
    told = [line["event"] for line in lines if line["log_level"] == "info"]
    assert told == [
        f"{label}: no more marked by xid 79, action, still unhealthy: the driver needs no action",
        f"{label}: healthy again after absent: cleared by the operator",
    ]


def test_last_words_of_a_replaced_driver_mark_nobody(made: Monitoring) -> None:
    looked(made, look(), look("590.1"))
    old, new = Watch.made
    version = made._book.version
    old.post(Failed("the library is gone", 1, 1.0, {UUID: "it is lost"}))
    old.post(Reported(UUID, 79))
    assert made._book.version == version
    new.post(Reported(UUID, 79))
    assert made._book.version > version


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
    made: Monitoring, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = health_marks_file.write

    def full(_marks: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(health_marks_file, "write", full)
    looked(made, look())
    made.heard(Reported(UUID, 79))
    monkeypatch.setattr(health_marks_file, "write", write)
    assert health_marks_file.read() == ()
    made.polled()
    assert [mark.gpu for mark in health_marks_file.read()] == [UUID]


def test_dump_has_nothing_to_do_with_the_marks_of_this_machine(
    made: Monitoring, tmp_path: Path
) -> None:
    """The machine's own plugin may run: its marks stay, and what is asked of it."""
    looked(made, look())
    made.heard(Reported(UUID, 79))
    health_marks_file.ask_to_clear("all")
    before = health_marks_file.read()
    news, lost = News(logger()), dump_file.load("lost-gpu")
    of_a_dump = Monitoring(
        Health(), str(tmp_path), Triggers(), news, lambda _uuid, _xid: None, keeps=False
    )
    looked(of_a_dump, Look(lost, lost, is_dump=True))
    of_a_dump.polled()
    assert of_a_dump._book.marks
    assert not {mark.gpu for mark in of_a_dump._book.marks} & {UUID}
    assert health_marks_file.read() == before
    assert list(health_marks_file.clear_requests()) == ["all"]
