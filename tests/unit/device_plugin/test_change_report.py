# SPDX-License-Identifier: Apache-2.0
"""The reports of a turn of the device plugin."""

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


def test_spec_that_was_written_is_told_and_a_warning_only_once() -> None:
    with capture_logs() as lines:
        told = ChangeReport(Notifier(logger()), "/none")
        told.report_outcome(
            TurnOutcome(
                Configuration(), OFFER, warnings=("a doubt",), written=("/var/run/cdi/a.json",)
            )
        )
        told.report_outcome(TurnOutcome(Configuration(), OFFER, warnings=("a doubt", "another")))
    assert [(line["log_level"], line["event"], line.get("path")) for line in lines] == [
        ("warning", "a doubt", None),
        ("info", "CDI spec written", "/var/run/cdi/a.json"),
        ("warning", "another", None),
    ]


def test_limits_that_no_running_server_of_mps_takes_are_told() -> None:
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


def test_what_is_isolated_is_told_once_and_when_it_changes() -> None:
    """Each resource has one line about its isolation, and another after a change."""
    memory = {device.uuid: UnitMemory(9 << 20, 9 << 20) for device in resource().devices}
    shared = replace(resource(), sharing="time-slicing", memory=memory)
    with capture_logs() as lines:
        told = ChangeReport(Notifier(logger()), "/none")
        for unenforced in ("", "", "the driver is old", ""):
            told.report_isolation((shared,), (unenforced, ""), guard=True)
    said = [memory.partition(" by ")[0] for _, memory in sharing(lines)]
    kept, watched = "limited to 9Mi a replica, enforced", "limited to 9Mi a replica, watched"
    assert said == [kept, watched, kept]
    assert {line["strategy"] for line in lines} == {"time-slicing"}
    assert all({"compute", "stability", "crash"} <= line.keys() for line in lines)


def test_devices_that_differ_have_lines_of_their_own() -> None:
    """If one GPU has limits and another has none, each line names its devices."""
    other = replace(DEVICE, uuid="GPU-other", index="7")
    units = (*resource().units, Unit("GPU-other::0", other, 0))
    memory = {"GPU-other": UnitMemory(9 << 20, 9 << 20)}
    shared = replace(resource(), units=units, sharing="time-slicing", memory=memory)
    with capture_logs() as lines:
        ChangeReport(Notifier(logger()), "/none").report_isolation((shared,))
    assert [line["devices"] for line in lines][-1] == ["7"]
    assert "GPU" not in str(lines[0]["devices"])
    assert len(lines) == 2


def test_a_limit_that_nobody_holds_is_a_warning() -> None:
    """The warning has the amount, the reason and the remedy, also for a GPU that is not shared."""
    memory = {device.uuid: UnitMemory(3 << 30, 3 << 30) for device in resource().devices}
    for strategy, amount in (("time-slicing", "3Gi a replica"), ("none", "3Gi")):
        limited = replace(resource(), sharing=strategy, memory=memory)
        with capture_logs() as lines:
            told = ChangeReport(Notifier(logger()), "/none")
            told.report_isolation(
                (limited,), ("driver 580 is older than r615", "update the driver")
            )
        (line,) = lines
        assert line["log_level"] == "warning"
        why = f"limited to {amount}, which is not enforced (driver 580 is older than r615): "
        assert line["memory"].startswith(why)
        assert line["hint"].startswith("update the driver; or ")
        assert "gpuhook.guard.action" in line["hint"]


def test_a_unit_of_memory_is_no_replica() -> None:
    memory = {device.uuid: UnitMemory(1 << 30, 1 << 30) for device in resource().devices}
    units = replace(resource(), sharing=MEMORY_UNITS, memory=memory)
    with capture_logs() as lines:
        told = ChangeReport(Notifier(logger()), "/none")
        told.report_isolation((units,))
    assert lines[0]["memory"].startswith("limited to 1Gi a unit, enforced by the driver")
    assert "hint" not in lines[0]


def test_units_of_another_size_are_told_once() -> None:
    def offered(size: int) -> TurnOutcome:
        entry = SharedResource(GPU, rename="nvidia.com/gpumem", unit=size)
        return TurnOutcome(Configuration(), offer(T4, entry, strategy=MEMORY_UNITS))

    with capture_logs() as lines:
        told = ChangeReport(Notifier(logger()), "/none")
        for size in (1 << 30, 1 << 30, 512 << 20, 512 << 20):
            told.report_outcome(offered(size))
    (line,) = lines
    assert line["reason"] == "UnitsResized"
    assert "a unit of nvidia.com/gpumem is 512 MiB now, and was 1024 MiB" in line["event"]
