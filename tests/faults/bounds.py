# SPDX-License-Identifier: Apache-2.0
"""What a fault under the real process may cost, and what must be so after it."""

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


def of_counter(running: PluginProcess, name: str) -> int:
    """Return the sum of a counter over its labels."""
    lines = running.metrics().splitlines()
    values = [line.rpartition(" ")[2] for line in lines if line.startswith(f"gpuhook_{name}_total")]
    return int(sum(map(float, values)))


@dataclass
class Allowed:
    """How much may come of a fault: lists sent, log lines, registrations."""

    lists: int
    lines: int
    registrations: int = 0


@contextmanager
def bounded(running: PluginProcess, allowed: Allowed) -> Iterator[None]:
    """Check what is said and sent within, and that nothing has piled up at its end."""
    running.wait_for_log(event="registered")
    before = vitals.of(running.pid)
    lists, lines = of_counter(running, "lists"), len(running.log())
    registrations = len(running.kubelet.registrations)
    yield
    vitals.check(running, before)
    assert of_counter(running, "lists") - lists <= allowed.lists
    assert len(running.log()) - lines <= allowed.lines
    assert len(running.kubelet.registrations) - registrations <= allowed.registrations
    assert not [line for line in running.log() if line.get("level") == "error"]
    assert not [line for line in running.log() if "Traceback" in str(line)]


def serves(kubelet: Kubelet, count: int) -> None:
    """Check that all devices are there, and that a pod gets one."""
    kubelet.wait_for_devices(GPU, count)
    held = kubelet.allocate(GPU, 1)
    assert held.response.envs["NVIDIA_VISIBLE_DEVICES"]
    kubelet.release(held)


def hears_of(running: PluginProcess, uuid: str | None) -> None:
    """Check that an XID 79 of a GPU is heard: its four replicas go, and come back when it is well.

    Events that come while NVML is being restarted are lost, as the driver's own are.
    """
    assert uuid is not None
    stub_events.say(running.node, uuid, "recovery 1")

    def heard() -> bool:
        stub_events.inject_xid(running.node, uuid, 79)
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            if of_health(running.kubelet, uuid) == {"Unhealthy"}:
                return True
            time.sleep(0.02)
        return False

    eventually(heard, f"XID 79 of {uuid}")
    stub_events.say(running.node, uuid, "recovery 0")
    eventually(lambda: of_health(running.kubelet, uuid) == {"Healthy"}, f"{uuid} to be well")


def of_health(kubelet: Kubelet, uuid: str) -> set[str]:
    """Return the healths that the units of a GPU have."""
    return {one.health for name, one in kubelet.devices(GPU).items() if name.startswith(uuid)}
