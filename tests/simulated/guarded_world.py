# SPDX-License-Identifier: Apache-2.0
"""A simulated host for the guard: devices, containers and processes with random behaviour.

It answers like the driver and the kernel, and knows the true state of each process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpuhook.device_plugin.guard.container_processes import Processes, ProcessFacts
from gpuhook.device_plugin.guard.guard_shares import LimitedUnit
from gpuhook.device_plugin.guard.ledger_limits import LedgerLimits, unambiguous
from gpuhook.device_plugin.metrics.cgroup_names import Membership
from gpuhook.device_plugin.metrics.unit_holders import Holder, Holdings
from gpuhook.errors import GpuhookError, fault
from gpuhook.vendors.nvidia.nvml.gpu_usage import ProcessUse
from gpuhook.vendors.nvidia.usage.process_memory import memory_by_pid
from gpuhook.vendors.usage_device import SampleTarget

GIB = 1 << 30
INSTANCE = (1, 0)
TARGETS = {
    "GPU-0": SampleTarget("GPU-0", "GPU-0"),
    "GPU-1": SampleTarget("GPU-1", "GPU-1"),
    "MIG-0": SampleTarget("MIG-0", "GPU-2", INSTANCE),
}
UNIT = 2 * GIB
# How a container gets its share, if the guard must enforce one.
RECORDED, UNITS, MOUNTED = "recorded", "units", "mounted"  # the guard's
BY_DRIVER, ALONE, STRANGER, AMBIGUOUS = "by driver", "alone", "stranger", "ambiguous"
EARLIER = "earlier"  # than the limit: its units had no limit when it started
KINDS = (RECORDED, UNITS, MOUNTED, BY_DRIVER, ALONE, STRANGER, AMBIGUOUS, EARLIER)


@dataclass
class Process:
    """A process. `memory` is by device; None: the driver does not know it."""

    pid: int
    started: int
    container: str | None
    memory: dict[str, int | None]
    is_stubborn: bool = False  # it ignores SIGTERM
    comes_back: bool = False


@dataclass
class Container:
    """A container; `limits` are its memory limits, whatever enforces them."""

    id: str
    kind: str
    pod: str  # "" if it belongs to no pod
    limits: dict[str, int]
    imposes: str = ""  # the name of a cgroup below its own


@dataclass
class World(Processes):
    """The host. `chance` decides; `refused` are pids that may get no signal."""

    chance: random.Random
    containers: dict[str, Container] = field(default_factory=dict)
    processes: dict[int, Process] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)  # devices of which the driver reports nothing
    is_broken: bool = False  # the driver's library cannot be opened
    is_old: bool = False  # it does not list the processes of MIG instances
    kubelet_answers: bool = True
    ticks: int = 100
    meanwhile: Callable[[int], None] | None = None  # between a decision and its signal
    witnessed: Callable[[Process, str], None] | None = None
    attempts: set[str | None] = field(default_factory=set)  # containers, in this round

    # -- events --

    def spawn(self, container: str | None, memory: Mapping[str, int | None], pid: int = 0) -> int:
        """Start a process, with `pid` if that is free, and return its pid."""
        if not pid or pid in self.processes:
            pid = next(n for n in iter(lambda: self.chance.randrange(2, 400), 0)
                       if n not in self.processes)  # fmt: skip
        self.ticks += 1
        stubborn, back = self.chance.random() < 0.3, self.chance.random() < 0.3
        self.processes[pid] = Process(pid, self.ticks, container, dict(memory), stubborn, back)
        return pid

    def used(self, container: str, device: str) -> tuple[int, bool]:
        """Return a container's use of a device, and whether the driver knows all of it."""
        amounts = [p.memory[device] for p in self.of(container, device)]
        return sum(amount or 0 for amount in amounts), None not in amounts

    def of(self, container: str, device: str) -> list[Process]:
        """Return the processes of a container that use a device."""
        return [
            one
            for one in self.processes.values()
            if one.container == container and device in one.memory
        ]

    def is_guarded(self, container: Container, device: str) -> bool:
        """Return whether the guard can know that it must enforce the limit on the device."""
        if device not in container.limits:
            return False
        if container.kind == UNITS:
            return self.kubelet_answers
        return container.kind in (RECORDED, MOUNTED)

    # -- the guard's queries --

    def recorded(self) -> tuple[LedgerLimits, ...]:
        found = []
        for one in self.containers.values():
            names = ("ns", one.pod, "main") if one.pod else ("", "", one.id)
            if one.kind in (RECORDED, AMBIGUOUS):
                found.append(LedgerLimits(one.id, names, dict(one.limits)))
            elif one.kind == BY_DRIVER:
                found.append(LedgerLimits(one.id, names, dict.fromkeys(one.limits)))
            elif one.kind in (UNITS, EARLIER):
                found.append(LedgerLimits(one.id, names))
            if one.kind == AMBIGUOUS:  # of another runtime
                found.append(LedgerLimits(one.id, names, dict(one.limits)))
        return unambiguous(found)

    def units(self) -> dict[str, LimitedUnit]:
        return {f"{d}::{n}": LimitedUnit(d, UNIT, "nvidia.com/gpu") for d in TARGETS
                for n in range(40)}  # fmt: skip

    def holdings(self) -> Holdings:
        if not self.kubelet_answers:
            return Holdings(reason="no answer")
        holders = {}
        numbers = {device: iter(range(40)) for device in TARGETS}
        for one in self.containers.values():
            if not one.pod or one.kind == STRANGER:
                continue
            for device, hard in one.limits.items():
                for _ in range(hard // UNIT):
                    holders[f"{device}::{next(numbers[device])}"] = Holder("ns", one.pod, "main")
        return Holdings(holders)

    @contextmanager
    def opened(self) -> Iterator[None]:
        if self.is_broken:
            raise fault("GH1204", path="nvml", reason="no driver")
        yield

    def processes_of(self, uuid: str) -> tuple[ProcessUse, ...] | None:
        if uuid in self.silent or (uuid == "MIG-0" and self.is_old):
            return None
        if uuid == "GPU-2" and "MIG-0" in self.silent:
            return None
        on = [one for one in self.processes.values() if uuid in one.memory]
        found = [ProcessUse(p.pid, p.memory[uuid], None, None, "compute") for p in on]
        if uuid == "MIG-0":
            found = [ProcessUse(p.pid, p.memory[uuid], *INSTANCE, "compute") for p in on]
        if uuid == "GPU-2":
            mine = [p for p in self.processes.values() if "MIG-0" in p.memory]
            found += [ProcessUse(p.pid, p.memory["MIG-0"], *INSTANCE, "compute") for p in mine]
            found.append(ProcessUse(3, 50 * GIB, 2, 0, "compute"))  # of the neighbor instance
        if on:  # graphics: the same process in another list, and one that has exited
            found.append(ProcessUse(on[0].pid, on[0].memory[uuid], None, None, "graphics"))
            found.append(ProcessUse(999, 50 * GIB, None, None, "compute"))
        return tuple(found)

    def trouble(self) -> GpuhookError | None:
        return None

    def host_mounts(self) -> frozenset[tuple[int, int]] | None:
        return frozenset()

    def about(self, pid: int) -> ProcessFacts | None:
        process = self.processes.get(pid)
        if process is None:
            return None
        if process.container is None:
            return ProcessFacts(process.started, Membership(("system.slice", "sshd.service")))
        container = self.containers[process.container]
        own = (container.id, container.imposes) if container.imposes else (container.id,)
        above = ("kubepods", f"pod{container.pod}") if container.pod else ("docker",)
        return ProcessFacts(process.started, Membership((*above, *own), bool(container.pod)))

    def grants(self, pid: int) -> dict[str, int]:
        process = self.processes.get(pid)
        container = self.containers.get(process.container or "") if process else None
        return container.limits if container and container.kind in (UNITS, MOUNTED) else {}

    def send(self, pid: int, name: str, is_still: Callable[[], bool]) -> bool:
        process = self.processes.get(pid)
        if process is None:
            return False
        self.attempts.add(process.container)
        if self.meanwhile is not None:
            self.meanwhile(pid)
        # The descriptor is that of the process: another process with its pid gets no signal.
        wanted = is_still()
        if not wanted or self.processes.get(pid) is None:
            return False
        if pid in self.refused:
            raise fault("GH1886", pid=pid, reason="Operation not permitted")
        assert self.witnessed is not None
        self.witnessed(self.processes[pid], name)
        if name == "SIGKILL" or not process.is_stubborn:
            ended = self.processes.pop(pid)
            if ended.comes_back:
                self.spawn(ended.container, ended.memory)
        return True


class Driver:
    """The driver of a world."""

    def __init__(self, world: World) -> None:
        self.world = world

    @contextmanager
    def opened(self) -> Iterator[None]:
        with self.world.opened():
            yield

    def memory(self, target: SampleTarget) -> dict[int, int | None] | None:
        with self.opened():  # as each call of NVML
            return memory_by_pid(self.world.processes_of, target)
