# SPDX-License-Identifier: Apache-2.0
"""Random faults of all kinds, for one plugin and its kubelet."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

from gpuhook.vendors.nvidia.inventory import dump_file
from tests.kubelet.process import TIME_SLICING, PluginProcess
from tests.simulated import changes, stub_events

INVALID = TIME_SLICING.replace("replicas: 4", "replicas: none")
RENAMED = TIME_SLICING.replace("timeSlicing:\n", "timeSlicing:\n    renameByDefault: true\n")
UNKNOWN_ERROR = 999


def replicas(count: int) -> str:
    """Return the configuration with this many replicas of each GPU."""
    return TIME_SLICING.replace("replicas: 4", f"replicas: {count}")


class Chaos:
    """Faults of one plugin, each harmless by itself, and the recovery from all."""

    def __init__(self, running: PluginProcess) -> None:
        self.running = running
        self.node = running.node
        self.facts = dump_file.load("h100x8")
        self.uuids = [str(gpu.uuid) for gpu in self.facts.gpus]
        self.is_away = False

    def kubelet_restarts(self, chance: random.Random) -> None:
        self.running.kubelet.restart()

    def kubelet_is_killed(self, chance: random.Random) -> None:
        self.running.kubelet.kill()
        self.running.kubelet.start()

    def socket_is_removed(self, chance: random.Random) -> None:
        (self.running.kubelet.directory / "nvidia-gpu.sock").unlink(missing_ok=True)

    def directory_is_removed(self, chance: random.Random) -> None:
        self.running.kubelet.stop()
        self.running.kubelet.remove_directory()
        self.running.kubelet.start()

    def driver_is_unloaded_or_loaded(self, chance: random.Random) -> None:
        change = stub_events.bring_back if self.is_away else stub_events.take_away
        change(self.node)
        self.is_away = not self.is_away

    def xids(self, chance: random.Random) -> None:
        xid = chance.choice([13, 31, 48, 63, 79, 94, 119])
        stub_events.inject_xid(self.node, chance.choice(self.uuids), xid, count=50)

    def wait_fails(self, chance: random.Random) -> None:
        stub_events.fail_wait(self.node, UNKNOWN_ERROR)

    def gpu_is_lost(self, chance: random.Random) -> None:
        if not self.is_away:
            stub_events.lose(self.node, chance.choice(self.uuids))

    def gpus_are_plugged(self, chance: random.Random) -> None:
        if not self.is_away:
            gone = chance.sample(range(8), chance.randrange(4))
            changes.become(self.node, changes.without(self.facts, gone))

    def configuration_changes(self, chance: random.Random) -> None:
        self.running.configure(chance.choice([INVALID, RENAMED, replicas(2), replicas(3), "{"]))

    def sighup(self, chance: random.Random) -> None:
        self.running.signal(signal.SIGHUP)

    def recover(self) -> None:
        """Restore the node and the configuration."""
        if self.is_away:
            stub_events.bring_back(self.node)
            self.is_away = False
        changes.become(self.node, self.facts)
        self.running.configure(TIME_SLICING)

    @property
    def faults(self) -> list[Callable[[random.Random], None]]:
        return [
            self.kubelet_restarts,
            self.kubelet_is_killed,
            self.socket_is_removed,
            self.directory_is_removed,
            self.driver_is_unloaded_or_loaded,
            self.xids,
            self.wait_fails,
            self.gpu_is_lost,
            self.gpus_are_plugged,
            self.configuration_changes,
            self.sighup,
        ]
