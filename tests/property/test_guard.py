# SPDX-License-Identifier: Apache-2.0
"""The guard under random events: it signals the right process of the right container, or none."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gpuhook.device_plugin.config.gpuhook_section import (
    GUARD_ACTIONS,
    KILL,
    NO_ACTION,
    TERMINATE,
    Guard,
)
from gpuhook.device_plugin.guard import guard_policy
from gpuhook.device_plugin.guard.device_processes import DeviceProcesses
from gpuhook.device_plugin.guard.guard_loop import GuardInput, GuardLoop
from gpuhook.device_plugin.guard.guard_policy import SETTLED
from tests.depth import depth
from tests.simulated.guarded_world import (
    ALONE,
    AMBIGUOUS,
    EARLIER,
    GIB,
    KINDS,
    MOUNTED,
    TARGETS,
    UNIT,
    UNITS,
    Container,
    Driver,
    Process,
    World,
)

SCENARIOS, ROUNDS = depth(100, 3000), 24
ABOVE, BETWEEN, BELOW, UNSEEN, OFF = "above", "between", "below", "unseen", "off"
Key = tuple[str, str]


@dataclass
class Oracle:
    """The correct decisions, computed from the simulated world."""

    world: World
    settings: Guard
    seconds: float = 0.0
    history: dict[Key, list[tuple[float, str, float]]] = field(default_factory=dict)
    signals: dict[Key, list[tuple[float, int, int, str]]] = field(default_factory=dict)
    seen: list[Process] = field(default_factory=list)  # copies from the time of the sample
    guarded: set[Key] = field(default_factory=set)
    dark: set[str] = field(default_factory=set)  # devices without a sample
    count: int = 0

    def sample(self, *, is_new: bool) -> None:
        """Record the containers above their limit. `is_new`: there was no earlier sample."""
        self.seen = [replace(p, memory=dict(p.memory)) for p in self.world.processes.values()]
        self.guarded = set()
        self.dark = set(TARGETS) if self.world.is_broken else set(self.world.silent)
        for container in self.world.containers.values():
            for device in TARGETS:
                key = container.id, device
                if self.world.is_guarded(container, device):
                    self.guarded.add(key)
                history = self.history.setdefault(key, [])
                settled = min(SETTLED, self.settings.grace)
                if is_new:
                    history.append((self.seconds, UNSEEN, settled))
                history.append((self.seconds, self._state(container, device), settled))

    def _state(self, container: Container, device: str) -> str:
        used, is_whole = self.world.used(container.id, device)
        if self.settings.action == NO_ACTION:
            return OFF
        if device in self.dark:
            return UNSEEN
        if not self.world.is_guarded(container, device):
            return BELOW
        limit = container.limits[device]
        if used > limit * self.settings.tolerance:
            return ABOVE
        if not is_whole:
            return UNSEEN
        return BETWEEN if used > limit else BELOW

    def mark_of(self, key: Key) -> tuple[float | None, float]:
        """Return the start of the excess of a container, and the elapsed grace period.

        The grace period restarts at each signal to a process of the container.
        """
        began, calm, total = None, None, 0.0
        last = max((one[0] for one in self.signals.get(key, ())), default=-1.0)
        before = (0.0, UNSEEN, 0.0)
        for when, state, settled in self.history.get(key, ()):
            elapsed = when - before[0]
            if state == BELOW:
                calm = 0.0 if calm is None else calm + elapsed
            elif state in (ABOVE, BETWEEN):
                calm = None
            if state == OFF or (calm is not None and calm >= settled):
                began, calm = None, None
            if state == ABOVE:
                total = total if began is not None else 0.0
                began = when if began is None else began
                total += elapsed if before[1] == ABOVE else 0.0
            if when <= last:
                total = 0.0
            before = when, state, settled
        return began, total

    def state(self, key: Key) -> str:
        return self.history[key][-1][1]

    def sent(self, key: Key) -> list[tuple[float, int, int, str]]:
        """Return the signals since the start of the excess."""
        began, _ = self.mark_of(key)
        return [one for one in self.signals.get(key, ()) if began is not None and one[0] >= began]

    def expected_process(self, key: Key, *, kills: bool) -> Process | None:
        """Return the process that should get SIGTERM: the largest one without a signal."""
        done = {one[1:3] for one in self.sent(key) if not kills or one[3] != "SIGTERM"}
        left = [
            one
            for one in self.seen
            if one.container == key[0] and one.memory.get(key[1])
            if (one.pid, one.started) not in done
        ]
        return max(left, key=lambda p: (p.memory[key[1]] or 0, -p.pid), default=None)

    def record_signal(self, process: tuple[int, int], name: str) -> None:
        """Record a sent or failed signal for each device of the process."""
        for one in self.seen:
            if (one.pid, one.started) == process:
                for key in [(one.container or "", device) for device in one.memory]:
                    if self.mark_of(key)[0] is not None and key[1] not in self.dark:
                        self.signals.setdefault(key, []).append((self.seconds, *process, name))

    def check_signal(self, process: Process, name: str) -> None:
        """Check a signal that is being sent."""
        self.count += 1
        assert process.pid not in (0, 1, os.getpid(), os.getppid())
        assert process.container is not None, "a process on the host"
        container = self.world.containers[process.container]
        assert container.kind not in (ALONE, AMBIGUOUS, EARLIER)
        keys = [
            (container.id, device)
            for device in process.memory
            if (container.id, device) in self.guarded
            if (self._fits(container.id, device, process) if name == "SIGTERM" else
                self._is_due(container.id, device, process))
        ]  # fmt: skip
        assert keys, (process, name, container)
        self.record_signal((process.pid, process.started), name)

    def _fits(self, container: str, device: str, process: Process) -> bool:
        key = container, device
        assert self.settings.action in (TERMINATE, KILL)
        if self.state(key) != ABOVE or self.mark_of(key)[1] < self.settings.grace - 1e-6:
            return False
        expected = self.expected_process(key, kills=self.settings.action == KILL)
        return expected is not None and (expected.pid, expected.started) == (
            process.pid,
            process.started,
        )

    def _is_due(self, container: str, device: str, process: Process) -> bool:
        assert self.settings.action == KILL
        sigterms = [
            when
            for when, pid, started, name in self.sent((container, device))
            if (pid, started, name) == (process.pid, process.started, "SIGTERM")
        ]
        if not sigterms or self.state((container, device)) not in (ABOVE, BETWEEN):
            return False
        return self.seconds - sigterms[-1] >= self.settings.kill_after - 1e-6


class Scenario:
    """A host with random events, and a guard."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = World(self.chance)
        self.oracle = Oracle(self.world, self._settings())
        self.world.witnessed = self.oracle.check_signal
        self._populate()
        self.is_new = True
        self.watch = self._guard()
        self.wait = 0.0

    def _settings(self) -> Guard:
        pick = self.chance.choice
        return Guard(
            action=pick((*GUARD_ACTIONS, TERMINATE, KILL, KILL)),
            grace=pick((0.0, 2.0, 5.0, 30.0)),
            kill_after=pick((1.0, 3.0, 12.0)),
            tolerance=pick((1.0, 1.05, 1.5)),
        )

    def _guard(self) -> GuardLoop:
        return GuardLoop(
            self.world,
            lambda: self.oracle.settings,
            read=self.world.recorded,
            clock=lambda: self.oracle.seconds,
            now=lambda: 1e9 + self.oracle.seconds,
        )

    def _populate(self) -> None:
        chance, world = self.chance, self.world
        for number in range(chance.randint(2, 7)):
            kind = chance.choice(KINDS)
            in_pod = kind in (UNITS, MOUNTED, ALONE, EARLIER) or chance.random() < 0.7
            identity = f"{number:x}" * 64 if chance.random() < 0.8 else f"web{number}"
            if kind not in ("recorded", "by driver", "units", AMBIGUOUS, EARLIER):
                identity = f"{number:x}" * 64  # an id as of an engine
            devices = chance.sample(sorted(TARGETS), chance.randint(1, 2))
            limits = {device: UNIT * chance.randint(1, 3) for device in devices}
            pod = f"pod-{number}" if in_pod else ""
            world.containers[identity] = Container(identity, kind, pod, limits)
            for _ in range(chance.randint(0, 3)):
                self._begin(identity)
        for one in world.containers.values():
            if chance.random() < 0.3:
                one.imposes = chance.choice(sorted(world.containers))
        for _ in range(2):
            self._begin(None)

    def _begin(self, container: str | None, pid: int = 0) -> None:
        chance = self.chance
        devices = chance.sample(sorted(TARGETS), chance.randint(1, 2))
        self.world.spawn(container, {device: self._amount() for device in devices}, pid)

    def _amount(self) -> int | None:
        return None if self.chance.random() < 0.05 else self.chance.randint(0, 8 * GIB)

    def _random_event(self, *, may_reload: bool = True) -> None:
        """Apply a random event to a process or container."""
        if may_reload and self.chance.random() < 0.01:
            self.oracle.settings = self._settings()
        if not self.world.processes or self.chance.random() < 0.15:
            self._begin(self._any_container())
        elif self.chance.random() < 0.4:
            self._host_changes(self.chance.randrange(4))
        else:
            self._process_changes(self.chance.choice(sorted(self.world.processes)))

    def _any_container(self) -> str | None:
        return self.chance.choice([None, *sorted(self.world.containers)])

    def _host_changes(self, what: int) -> None:
        chance, world = self.chance, self.world
        if what == 0:
            world.silent = {d for d in TARGETS if chance.random() < 0.1}
            world.is_broken = chance.random() < 0.1
        elif what == 1:
            world.kubelet_answers = chance.random() < 0.8
        elif what == 2:
            world.is_old = chance.random() < 0.5
        else:
            world.refused = {pid for pid in world.processes if chance.random() < 0.05}

    def _process_changes(self, pid: int) -> None:
        process = self.world.processes[pid]
        what = self.chance.randrange(6)
        if what == 0:
            del self.world.processes[pid]
        elif what == 1:  # another process has its pid
            del self.world.processes[pid]
            self._begin(self._any_container(), pid)
        elif what == 2:  # a fork, without memory at first
            self.world.spawn(process.container, dict.fromkeys(process.memory, 0))
        elif what == 3:  # moved by root of the host
            process.container = self._any_container()
        else:
            process.memory = {device: self._amount() for device in process.memory}

    def run(self) -> None:
        for _ in range(ROUNDS):
            for _ in range(self.chance.choice((0, 0, 0, 1, 2))):
                self._random_event()
            if self.chance.random() < 0.03:
                self.watch, self.is_new = self._guard(), True
            self._round()

    def _round(self) -> None:
        world, oracle = self.world, self.oracle
        is_disturbed = self.chance.random() < 0.15
        disturbed: Callable[[int], None] = lambda _pid: self._disturb()  # noqa: E731
        world.meanwhile = disturbed if is_disturbed else None
        world.attempts = set()
        oracle.sample(is_new=self.is_new)
        due = set() if is_disturbed else self._due()
        processes = DeviceProcesses((Driver(world),), TARGETS)
        question = GuardInput(processes, world.holdings(), world.units())
        taken = self.watch.round(question)
        self.is_new = not taken.is_needed
        for order, _error in taken.failed:
            oracle.record_signal((order.user.pid, order.user.started), "failed")
        assert due <= world.attempts
        for mark in taken.began:
            assert oracle.state(mark.share.key) == ABOVE or not mark.share.is_certain
        if oracle.settings.action != "none":
            above = {key for key in oracle.history if oracle.state(key) == ABOVE}
            assert above <= {mark.share.key for mark in self.watch.marks}
        before = 0.0 if self.is_new else self.wait
        self.wait = guard_policy.interval(before, is_near=taken.is_near, settings=oracle.settings)
        oracle.seconds += self.wait

    def _disturb(self) -> None:
        for _ in range(3):
            self._random_event(may_reload=False)

    def _due(self) -> set[str]:
        """Return the containers that must get SIGTERM in this round."""
        oracle, settings = self.oracle, self.oracle.settings
        if settings.action not in (TERMINATE, KILL):
            return set()
        found = set()
        for key in oracle.history:
            if oracle.state(key) != ABOVE or oracle.mark_of(key)[1] < settings.grace:
                continue
            is_killing = settings.action == KILL
            if is_killing and oracle.sent(key):
                continue  # it may wait for the last signalled process
            if oracle.expected_process(key, kills=is_killing) is not None:
                found.add(key[0])
        return found


def test_guard_signals_exactly_the_expected_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events are forks, reused pids, restarts, processes on the host, MIG and unknown memory.

    The oracle checks each signal when it is sent, and that no expected signal is missing.
    """
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path))
    signals = 0
    for seed in range(SCENARIOS):
        (tmp_path / "guard.json").unlink(missing_ok=True)
        scenario = Scenario(seed)
        try:
            scenario.run()
        except AssertionError as error:
            raise AssertionError(f"scenario {seed}: {error}") from error
        signals += scenario.oracle.count
    assert signals > SCENARIOS // 2  # the scenarios cause signals
