# SPDX-License-Identifier: Apache-2.0
"""From an XID in NVML to unhealthy devices: the real thread, on a small real libnvidia-ml.so.1."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from gpuhook.device_plugin.config.gpuhook_section import Health
from gpuhook.device_plugin.health.gpu_health import GpuHealth
from gpuhook.device_plugin.health.health_marks import Evidence
from gpuhook.device_plugin.health.nvml_watcher import (
    Message,
    Watcher,
    WatchFailed,
    WatchStarted,
    XidReport,
)
from gpuhook.device_plugin.offer.offered_devices import Device
from gpuhook.vendors.nvidia.nvml import nvml_device, nvml_events
from tests.simulated import stub_events
from tests.simulated.node import SimulatedNode, make_node

SECONDS = 20


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path, "h100x8", real_nodes=False)


def uuids(node: SimulatedNode) -> list[str]:
    return [gpu.uuid for gpu in node.node.gpus if gpu.uuid]


@contextmanager
def watching(node: SimulatedNode) -> Iterator[queue.Queue[Message]]:
    posted: queue.Queue[Message] = queue.Queue()
    watcher = Watcher(
        partial(nvml_events.watched, node.nvml_library),
        nvml_device.recovery_action,
        posted.put,
        milliseconds=50,
        sleep=lambda seconds: None,
    )
    watcher.start(uuids(node))
    try:
        yield posted
    finally:
        watcher.stop()
        assert watcher.join(SECONDS)


def following(posted: queue.Queue[Message], kind: type[Message]) -> Message:
    while True:
        message = posted.get(timeout=SECONDS)
        if isinstance(message, kind):
            return message


def book(node: SimulatedNode) -> tuple[GpuHealth, list[Device]]:
    made = GpuHealth(Health(), Evidence())
    made.update_gpus(node.node.gpus, 0.0)
    devices = [
        Device(uuid, str(index), uuid, index, (), ()) for index, uuid in enumerate(uuids(node))
    ]
    return made, devices


def test_the_drivers_word_on_one_gpu_among_eight(node: SimulatedNode) -> None:
    """A double bit error that needs no action leaves all eight, until the driver says reset."""
    made, devices = book(node)
    broken = uuids(node)[5]
    with watching(node) as posted:
        assert following(posted, WatchStarted) == WatchStarted()
        for xid, number, action, hit in ((48, 0, "none", []), (154, 1, "reset", [broken])):
            stub_events.say(node, broken, f"recovery {number}")
            stub_events.inject_xid(node, broken, xid)
            report = following(posted, XidReport)
            assert report == XidReport(broken, xid, action=action)
            assert isinstance(report, XidReport)
            made.add_xid(report, report.action, 1.0)
            assert list(made.unhealthy(devices)) == hit


def test_a_gpu_that_falls_off_the_bus(node: SimulatedNode) -> None:
    """A lost GPU reports no action, so the table decides; the failure lists lost GPUs."""
    made, devices = book(node)
    gone = uuids(node)[2]
    with watching(node) as posted:
        following(posted, WatchStarted)
        stub_events.say(node, gone, "lost_after 0")
        stub_events.inject_xid(node, gone, 79)
        report = following(posted, XidReport)
        assert isinstance(report, XidReport)
        assert report.action is None
        made.add_xid(report, report.action, 1.0)
    assert made.unhealthy(devices) == {gone: "XID 79 (the GPU has fallen off the bus)"}


def test_nvml_goes_and_comes_back(node: SimulatedNode) -> None:
    """A driver that is away is waited for, and its XIDs are heard again when it is back."""
    with watching(node) as posted:
        following(posted, WatchStarted)
        stub_events.take_away(node)
        following(posted, WatchFailed)
        stub_events.bring_back(node)
        following(posted, WatchStarted)
        stub_events.inject_xid(node, uuids(node)[0], 95)
        report = following(posted, XidReport)
        assert isinstance(report, XidReport)
        assert report.xid == 95
