# SPDX-License-Identifier: Apache-2.0
"""A week of a device plugin, by a fast clock: it does not grow, and its offer stays complete."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.inventory import dump_file
from tests import growth
from tests.depth import depth
from tests.faults import vitals
from tests.figures import Figures
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import PluginProcess, plugin
from tests.kubelet.running import kubelet
from tests.simulated import changes, stub_events
from tests.simulated.node import make_node

__all__ = ["kubelet"]

SPEED = 600
HOURS = depth(1, 6, 168)
TURNS_PER_HOUR = 6
MIXED = """\
version: v1
flags:
  migStrategy: mixed
sharing:
  timeSlicing:
    resources:
    - name: nvidia.com/mig-1g.5gb
      replicas: {replicas}
"""
SLICE = "nvidia.com/mig-1g.5gb"
MIB = 6  # resident memory that may be added: the allocator's


class Life:
    """What happens to the plugin, one thing a turn."""

    def __init__(self, running: PluginProcess, kubelet: Kubelet) -> None:
        self.running, self.kubelet = running, kubelet
        self.facts = dump_file.load("a100-mig")
        self.replicas, self.allocations = 4, 0
        self.events = cycle(
            [
                *(self.reload, self.restart, self.mig, self.withdraw),
                *(self.watch, self.sighup, self.xid, self.claim),
            ]
        )

    @property
    def slices(self) -> int:
        """Return the number of instances that are offered in replicas."""
        return sum(one.profile == "1g.5gb" for gpu in self.facts.gpus for one in gpu.instances)

    def settled(self) -> None:
        """Wait until all units are offered."""
        self.kubelet.wait_for_devices(SLICE, self.slices * self.replicas)

    def turn(self) -> None:
        """Let one thing happen, after the calls of some pods."""
        for _ in range(5):
            self.pod()
        assert "gpuhook_" in self.running.metrics()
        next(self.events)()
        self.settled()

    def pod(self) -> None:
        """Allocate a unit, and release it."""
        allocated = self.kubelet.allocate(SLICE, 1)
        assert allocated.response.envs["NVIDIA_VISIBLE_DEVICES"].startswith("MIG-")
        self.kubelet.release(allocated)
        self.allocations += 1

    def reload(self) -> None:
        self.replicas = 2 if self.replicas == 4 else 4
        self.running.configure(MIXED.format(replicas=self.replicas))

    def restart(self) -> None:
        self.kubelet.restart()

    def mig(self) -> None:
        """Remove two instances of a GPU, and create them again."""
        first, *others = self.facts.gpus
        fewer = replace(first, instances=first.instances[:-2])
        changes.become(self.running.node, replace(self.facts, gpus=(fewer, *others)))
        self.kubelet.wait_for_devices(SLICE, (self.slices - 2) * self.replicas)
        changes.become(self.running.node, self.facts)

    def withdraw(self) -> None:
        """Remove all instances of the resource, and create them again."""
        gpus = [
            replace(gpu, instances=tuple(i for i in gpu.instances if i.profile != "1g.5gb"))
            for gpu in self.facts.gpus
        ]
        changes.become(self.running.node, replace(self.facts, gpus=tuple(gpus)))
        self.kubelet.wait_for_devices(SLICE, 0)
        changes.become(self.running.node, self.facts)

    def watch(self) -> None:
        self.kubelet.watch(SLICE).cancel()

    def sighup(self) -> None:
        self.running.signal(signal.SIGHUP)

    def xid(self) -> None:
        """Report an error of an application, which makes no GPU unhealthy."""
        stub_events.inject_xid(self.running.node, str(self.facts.gpus[0].uuid), 13)

    def claim(self) -> None:
        """Do nothing: a quiet time."""


@pytest.mark.soak
def test_a_week(tmp_path: Path, kubelet: Kubelet, figures: Figures) -> None:
    """Descriptors, threads, memory and files are the same after a week of turns."""
    place = tmp_path / "plugin"
    node = make_node(tmp_path / "node", "a100-mig")
    text = MIXED.format(replicas=4)
    env = {"CLOCK_SPEED": str(SPEED), "GPUHOOK_HEALTH_POLL_INTERVAL": "10s"}
    program = "tests.kubelet.fast_plugin"
    with plugin(place, node, kubelet, text, env, module=program) as running:
        life = Life(running, kubelet)
        life.settled()
        for _ in range(16):  # each event twice: libraries keep what they first need
            life.turn()
        before, files = vitals.read(running.pid), growth.Directory(running.state)
        began, lines = time.monotonic(), len(running.log())
        turns = HOURS * TURNS_PER_HOUR
        for number in range(turns):
            life.turn()
            due = began + (number + 1) * 3600 / TURNS_PER_HOUR / SPEED
            time.sleep(max(0.0, due - time.monotonic()))
        after, files_after = vitals.read(running.pid), growth.Directory(running.state)
        added = len(running.log()) - lines
        assert growth.zombies([running.pid]) == 0
    hours = (time.monotonic() - began) * SPEED / 3600
    figures.record("hours of the device plugin's clock", f"{hours:.0f}")
    figures.record("turns with a reload, restart, MIG change or another event", str(turns))
    figures.record("allocations", str(life.allocations))
    limits = {
        "descriptors": (before.fds, after.fds, vitals.FDS),
        "threads": (before.threads, after.threads, vitals.THREADS),
        "MiB of resident memory": (before.mib, after.mib, MIB),
        "files in /run": (files.files, files_after.files, 0),
    }
    for what, (old, new, spare) in limits.items():
        figures.record(what, f"{old} to {new}", str(old + spare))
        assert new <= old + spare, what
    figures.record("lines of the log for each turn", f"{added / turns:.1f}")
