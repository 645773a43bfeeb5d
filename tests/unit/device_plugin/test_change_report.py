# SPDX-License-Identifier: Apache-2.0
"""The log lines about changes between turns of the device plugin."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any

from structlog.testing import capture_logs

from gpuhook.device_plugin.change_report import ChangeReport
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS, SharedResource
from gpuhook.device_plugin.mps.mps_service import MpsState
from gpuhook.device_plugin.notifier import Notifier
from gpuhook.device_plugin.offer.offered_devices import Unit, UnitMemory
from gpuhook.device_plugin.offer.resources import Offer
from gpuhook.device_plugin.reconcile import TurnOutcome
from gpuhook.host.logs import logger
from tests.kubelet.plugin import resource
from tests.unit.offering import GPU, T4, offer

DEVICE = resource().devices[0]
OFFER = Offer((resource(),), ())

DOMAIN = "nvidia.com"


def test_written_spec_is_logged_and_a_warning_only_once() -> None:
    with capture_logs() as lines:
        report = ChangeReport(Notifier(logger()), "/none")
        report.report_outcome(
            TurnOutcome(
                Configuration(), OFFER, warnings=("a doubt",), written=("/var/run/cdi/a.json",)
            )
        )
        report.report_outcome(TurnOutcome(Configuration(), OFFER, warnings=("a doubt", "another")))
    assert [(line["log_level"], line["event"], line.get("path")) for line in lines] == [
        ("warning", "a doubt", None),
        ("info", "CDI spec written", "/var/run/cdi/a.json"),
        ("warning", "another", None),
    ]


def test_mps_limits_that_need_a_restart_are_logged() -> None:
    with capture_logs() as lines:
        ChangeReport(Notifier(logger()), "/none").report_outcome(
            TurnOutcome(Configuration(), OFFER, mps=MpsState(changed=[GPU]))
        )
    (line,) = lines
    assert (line["log_level"], line["resource"]) == ("warning", GPU)
    assert "a running server keeps the old limits" in line["event"]


def sharing(lines: list[MutableMapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the resource and the memory of each line about sharing."""
    return [(line["resource"], line["memory"]) for line in lines if line["event"] == "sharing"]


def test_isolation_is_logged_once_per_change() -> None:
    memory = {device.uuid: UnitMemory(9 << 20, 9 << 20) for device in resource().devices}
    shared = replace(resource(), sharing="time-slicing", memory=memory)
    with capture_logs() as lines:
        report = ChangeReport(Notifier(logger()), "/none")
        for unenforced in ("", "", "the driver is old", ""):
            report.report_isolation((shared,), {DOMAIN: (unenforced, "")}, guard=True)
    reported = [memory.partition(" by ")[0] for _, memory in sharing(lines)]
    enforced, watched = "limited to 9Mi a replica, enforced", "limited to 9Mi a replica, monitored"
    assert reported == [enforced, watched, enforced]
    assert {line["strategy"] for line in lines} == {"time-slicing"}
    assert all({"compute", "stability", "crash"} <= line.keys() for line in lines)


def test_devices_with_different_limits_have_separate_lines() -> None:
    other = replace(DEVICE, uuid="GPU-other", index="7")
    units = (*resource().units, Unit("GPU-other::0", other, 0))
    memory = {"GPU-other": UnitMemory(9 << 20, 9 << 20)}
    shared = replace(resource(), units=units, sharing="time-slicing", memory=memory)
    with capture_logs() as lines:
        ChangeReport(Notifier(logger()), "/none").report_isolation((shared,))
    assert [line["devices"] for line in lines][-1] == ["7"]
    assert "GPU" not in str(lines[0]["devices"])
    assert len(lines) == 2


def test_unenforced_limit_is_a_warning() -> None:
    """It has the amount, the reason and the remedy, also for a GPU that is not shared."""
    memory = {device.uuid: UnitMemory(3 << 30, 3 << 30) for device in resource().devices}
    for strategy, amount in (("time-slicing", "3Gi a replica"), ("none", "3Gi")):
        limited = replace(resource(), sharing=strategy, memory=memory)
        with capture_logs() as lines:
            report = ChangeReport(Notifier(logger()), "/none")
            reasons = ("driver 580 is older than r615", "update the driver")
            report.report_isolation((limited,), {DOMAIN: reasons})
        (line,) = lines
        assert line["log_level"] == "warning"
        why = f"limited to {amount}, which is not enforced (driver 580 is older than r615): "
        assert line["memory"].startswith(why)
        assert line["hint"].startswith("update the driver; or ")
        assert "gpuhook.guard.action" in line["hint"]


def test_limit_of_a_memory_unit_is_logged_per_unit() -> None:
    memory = {device.uuid: UnitMemory(1 << 30, 1 << 30) for device in resource().devices}
    units = replace(resource(), sharing=MEMORY_UNITS, memory=memory)
    with capture_logs() as lines:
        report = ChangeReport(Notifier(logger()), "/none")
        report.report_isolation((units,))
    assert lines[0]["memory"].startswith("limited to 1Gi a unit, enforced by the driver")
    assert "hint" not in lines[0]


def test_changed_unit_size_is_logged_once() -> None:
    def offered(size: int) -> TurnOutcome:
        entry = SharedResource(GPU, rename="nvidia.com/gpumem", unit=size)
        return TurnOutcome(Configuration(), offer(T4, entry, strategy=MEMORY_UNITS))

    with capture_logs() as lines:
        report = ChangeReport(Notifier(logger()), "/none")
        for size in (1 << 30, 1 << 30, 512 << 20, 512 << 20):
            report.report_outcome(offered(size))
    (line,) = lines
    assert line["reason"] == "UnitsResized"
    assert "a unit of nvidia.com/gpumem is 512 MiB now, and was 1024 MiB" in line["event"]
