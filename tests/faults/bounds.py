# SPDX-License-Identifier: Apache-2.0
"""Bounds of what a fault may cost the plugin process, and checks after it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.faults import vitals
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import GPU, PluginProcess
from tests.simulated import stub_events
from tests.waiting import eventually


def counter_sum(running: PluginProcess, name: str) -> int:
    """Return the sum of a counter over its labels."""
    lines = running.metrics().splitlines()
    values = [line.rpartition(" ")[2] for line in lines if line.startswith(f"gpuhook_{name}_total")]
    return int(sum(map(float, values)))


@dataclass
class Allowed:
    """Largest numbers of lists, log lines and registrations after a fault."""

    lists: int
    lines: int
    registrations: int = 0


@contextmanager
def bounded(running: PluginProcess, allowed: Allowed) -> Iterator[None]:
    """Check what the plugin logs and sends within the block, and its resources at the end."""
    running.wait_for_log(event="registered")
    before = vitals.read(running.pid)
    lists, lines = counter_sum(running, "lists"), len(running.log())
    registrations = len(running.kubelet.registrations)
    yield
    vitals.check(running, before)
    assert counter_sum(running, "lists") - lists <= allowed.lists
    assert len(running.log()) - lines <= allowed.lines
    assert len(running.kubelet.registrations) - registrations <= allowed.registrations
    assert not [line for line in running.log() if line.get("level") == "error"]
    assert not [line for line in running.log() if "Traceback" in str(line)]


def assert_serves(kubelet: Kubelet, count: int) -> None:
    """Check that the kubelet has all devices, and that a pod gets one."""
    kubelet.wait_for_devices(GPU, count)
    allocated = kubelet.allocate(GPU, 1)
    assert allocated.response.envs["NVIDIA_VISIBLE_DEVICES"]
    kubelet.release(allocated)


def assert_xids_are_reported(running: PluginProcess, uuid: str | None) -> None:
    """Check that XID 79 makes the four replicas of a GPU unhealthy until the GPU is healthy again.

    Events during a restart of NVML are lost, as with the real driver.
    """
    assert uuid is not None
    stub_events.say(running.node, uuid, "recovery 1")

    def xid_is_handled() -> bool:
        stub_events.inject_xid(running.node, uuid, 79)
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            if healths_of(running.kubelet, uuid) == {"Unhealthy"}:
                return True
            time.sleep(0.02)
        return False

    eventually(xid_is_handled, f"XID 79 of {uuid}")
    stub_events.say(running.node, uuid, "recovery 0")
    eventually(lambda: healths_of(running.kubelet, uuid) == {"Healthy"}, f"{uuid} to be healthy")


def healths_of(kubelet: Kubelet, uuid: str) -> set[str]:
    """Return the health values of the units of a GPU."""
    return {one.health for name, one in kubelet.devices(GPU).items() if name.startswith(uuid)}
