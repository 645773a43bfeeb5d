# SPDX-License-Identifier: Apache-2.0
"""From an XID of NVML to unhealthy devices: the real thread with the NVML stub library."""

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
from gpuhook.device_plugin.offer.offered_devices import Device
from gpuhook.vendors.nvidia.nvml import nvml_device, nvml_events
from gpuhook.vendors.nvidia.plugin.nvml_watcher import (
    Message,
    Watcher,
    WatchFailed,
    WatchStarted,
    XidReport,
)
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


def next_message(posted: queue.Queue[Message], kind: type[Message]) -> Message:
    while True:
        message = posted.get(timeout=SECONDS)
        if isinstance(message, kind):
            return message


def health_and_devices(node: SimulatedNode) -> tuple[GpuHealth, list[Device]]:
    health = GpuHealth(Health(), Evidence())
    health.update_gpus(node.node.gpus, 0.0)
    devices = [
        Device(uuid, str(index), uuid, index, (), ()) for index, uuid in enumerate(uuids(node))
    ]
    return health, devices


def test_recovery_action_decides_if_a_gpu_is_unhealthy(node: SimulatedNode) -> None:
    """XID 48 with the action none marks no GPU; the action reset marks its GPU."""
    health, devices = health_and_devices(node)
    broken = uuids(node)[5]
    with watching(node) as posted:
        assert next_message(posted, WatchStarted) == WatchStarted()
        for xid, number, action, hit in ((48, 0, "none", []), (154, 1, "reset", [broken])):
            stub_events.say(node, broken, f"recovery {number}")
            stub_events.inject_xid(node, broken, xid)
            report = next_message(posted, XidReport)
            assert report == XidReport(broken, xid, action=action)
            assert isinstance(report, XidReport)
            health.add_xid(report, report.action, 1.0)
            assert list(health.unhealthy(devices)) == hit


def test_lost_gpu_is_marked_by_the_xid_table(node: SimulatedNode) -> None:
    """A lost GPU reports no recovery action."""
    health, devices = health_and_devices(node)
    gone = uuids(node)[2]
    with watching(node) as posted:
        next_message(posted, WatchStarted)
        stub_events.say(node, gone, "lost_after 0")
        stub_events.inject_xid(node, gone, 79)
        report = next_message(posted, XidReport)
        assert isinstance(report, XidReport)
        assert report.action is None
        health.add_xid(report, report.action, 1.0)
    assert health.unhealthy(devices) == {gone: "XID 79 (the GPU has fallen off the bus)"}


def test_xids_are_reported_after_the_driver_is_back(node: SimulatedNode) -> None:
    """A driver that is away is waited for, and its XIDs are heard again when it is back."""
    with watching(node) as posted:
        next_message(posted, WatchStarted)
        stub_events.take_away(node)
        next_message(posted, WatchFailed)
        stub_events.bring_back(node)
        next_message(posted, WatchStarted)
        stub_events.inject_xid(node, uuids(node)[0], 95)
        report = next_message(posted, XidReport)
        assert isinstance(report, XidReport)
        assert report.xid == 95
