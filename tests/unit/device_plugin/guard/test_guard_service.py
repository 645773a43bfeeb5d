# SPDX-License-Identifier: Apache-2.0
"""GuardService in the plugin's event loop: samples, reports, signals, and failures."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from gpuhook.containers.hot import ledger
from gpuhook.device_plugin.api_server.client import ApiServer
from gpuhook.device_plugin.api_server.node_events import NodeEvents
from gpuhook.device_plugin.config.gpuhook_section import KILL, NO_ACTION, REPORT, Guard
from gpuhook.device_plugin.guard import (
    container_processes,
    device_processes,
    guard_marks,
    guard_service,
    guard_shares,
)
from gpuhook.device_plugin.guard.container_processes import Processes, ProcessFacts
from gpuhook.device_plugin.guard.guard_policy import GuardMark
from gpuhook.device_plugin.guard.guard_service import GuardService
from gpuhook.device_plugin.metrics import unit_holders
from gpuhook.device_plugin.metrics.cgroup_names import Membership
from gpuhook.device_plugin.metrics.counters import Counters
from gpuhook.device_plugin.metrics.unit_holders import Holder, Holdings
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.device_plugin.notifier import Notifier
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit, UnitMemory
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import procfs
from gpuhook.memory_limits import guard_state
from gpuhook.vendors.usage.usage_device import SampleTarget
from tests.unit.api_stand_in import serving

GIB = 1 << 30
STRANGER = "b" * 64
GPU, NAME = "GPU-1", "nvidia.com/gpu"
FAST = Guard(action=KILL, grace=0.05, kill_after=0.05, shortest_interval=0.05, longest_interval=0.1)
DEVICE = Device(GPU, "0", GPU, 0, (), ())
UNITS = tuple(Unit(f"{GPU}::{n}", DEVICE, n) for n in range(2))
RESOURCE = Resource(NAME, UNITS, "time-slicing", memory={GPU: UnitMemory(4 * GIB, 4 * GIB)})


class Log:
    """Records log lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda event, **fields: self.lines.append((level, event, fields))

    def reasons(self) -> list[str]:
        """Return the reasons of the logged events."""
        return [str(fields["reason"]) for _, _, fields in self.lines if "reason" in fields]


class Host(Processes):
    """Real processes in invented containers, and a driver that lists them.

    The driver hangs while `answers` is not set, and fails if `error` is set.
    """

    def __init__(self) -> None:
        super().__init__()
        self.uses: dict[int, int] = {}
        self.containers: dict[int, str] = {}
        self.fault: GpuhookError | None = None
        self.error: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()
        self.questions = 0
        self.opened = nullcontext

    def trouble(self) -> GpuhookError | None:
        return self.fault

    def about(self, pid: int) -> ProcessFacts | None:
        found = super().about(pid)
        identity = self.containers.get(pid)
        return found and ProcessFacts(found.started, Membership((identity,) if identity else ()))

    def memory(self, _target: SampleTarget) -> dict[int, int | None]:
        self.questions += 1
        self.answers.wait(60)
        if self.error is not None:
            raise self.error
        return dict(self.uses)


class Environment:
    """A guard with a simulated host, driver and kubelet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host = Host()
        self.log = Log()
        self.observations = Counters()
        self.list_calls = 0
        self.holdings = Holdings()
        self.events: NodeEvents | None = None
        monkeypatch.setattr(device_processes, "readers", lambda *_: (self.host,))
        monkeypatch.setattr(container_processes, "Processes", lambda: self.host)
        monkeypatch.setattr(unit_holders, "ask", self._ask)

    async def _ask(self, socket: str) -> Holdings:
        self.list_calls += 1
        return self.holdings

    def run(
        self, scenario: Callable[[GuardService], Awaitable[None]], settings: Guard = FAST
    ) -> None:
        async def running() -> None:
            news = Notifier(self.log, self.events)
            guard = GuardService(settings, "/socket", news, self.observations)
            guard.update(NodeSnapshot(), (RESOURCE,))
            try:
                await scenario(guard)
            finally:
                await guard.end()
                await news.end(5)

        asyncio.run(running())

    def action_counts(self) -> dict[tuple[str, ...], int]:
        return self.observations.snapshot().counters["guard_actions"]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    """Yield an environment, and wait for its last round: that would write to the next test's."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path))
    made = Environment(monkeypatch)
    yield made
    made.host.answers.set()
    join_rounds()


def join_rounds() -> None:
    """Wait until no round of a guard runs: the plugin does not wait for one."""
    for thread in threading.enumerate():
        if thread.name == "gpuhook-guard":
            thread.join(10)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


async def until(wanted: Callable[[], object]) -> None:
    for _ in range(3000):
        if wanted():
            return
        await asyncio.sleep(0.005)
    raise TimeoutError


def record_container(
    identity: str = "web", by: str = "", hard: int = 4 * GIB, pid: int = 0
) -> None:
    own = {"pid": pid or os.getpid(), "started": procfs.start_time(os.getpid())}
    memory = [{"device": GPU, "hard": hard, "soft": hard, "by": by}]
    names = {"namespace": "default", "pod": identity, "container": "main"}
    ledger.record("", identity, {**own, **names, "memory": memory})


def test_driver_is_not_queried_without_a_limited_container(environment: Environment) -> None:
    """The kubelet is called once, and again after an Allocate call."""

    async def scenario(guard: GuardService) -> None:
        await until(lambda: environment.list_calls == 1 and guard._wait is None)
        record_container("other", by="driver")
        guard.on_poll()
        await until(lambda: environment.list_calls == 2)
        await asyncio.sleep(0.2)
        assert (environment.list_calls, environment.host.questions) == (2, 0)
        environment.holdings = Holdings({f"{GPU}::0": Holder("default", "web", "main")})
        guard.on_allocate()
        await until(lambda: environment.host.questions > 3)
        environment.holdings = Holdings()
        guard.on_poll()
        await until(lambda: guard._wait is None)

    environment.run(scenario)


def test_kubelet_is_called_again_after_allocate(environment: Environment) -> None:
    """The kubelet calls Allocate before it records the holder."""

    async def scenario(guard: GuardService) -> None:
        await until(lambda: environment.list_calls == 1 and guard._wait is None)
        guard.on_allocate()
        await until(lambda: environment.list_calls == 2 and guard._wait is None)
        environment.holdings = Holdings({f"{GPU}::0": Holder("default", "web", "main")})
        guard.on_poll()
        await until(lambda: environment.host.questions)
        environment.holdings = Holdings()
        for _ in range(10):
            guard.on_poll()
            await asyncio.sleep(0.02)
        await until(lambda: guard._wait is None)
        asked = environment.list_calls
        guard.on_poll()
        await asyncio.sleep(0.05)
        assert environment.list_calls == asked

    environment.run(scenario)


def test_container_above_its_limit_is_reported_marked_and_terminated(
    environment: Environment, sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    with serving(tmp_path) as stand_in:
        unwanted: list[GpuhookError] = []
        stand_in.otherwise = lambda asked: asked.reply({}, 201)
        environment.events = NodeEvents(ApiServer(stand_in.access), "node-1", unwanted.append)
        host = environment.host
        host.containers = {sleeper.pid: "web", 1: STRANGER}
        host.uses = {sleeper.pid: 5 * GIB, 1: 9 * GIB, os.getpid(): 9 * GIB}

        async def scenario(guard: GuardService) -> None:
            record_container()
            guard.on_poll()
            await until(lambda: "MemoryLimitExceeded" in environment.log.reasons())
            await until(lambda: sleeper.poll() is not None)
            del host.uses[sleeper.pid]
            await until(lambda: "MemoryLimitKept" in environment.log.reasons())
            assert guard_marks.read() == ()

        environment.run(scenario)
    assert unwanted == []
    messages = {asked.body["reason"]: asked.body["message"] for asked in stand_in.asked}
    assert messages["MemoryLimitExceeded"].startswith(
        "default/web/main uses 5120 MiB of GPU-1, above its limit of 4096 MiB"
    )
    assert f"SIGTERM for process {sleeper.pid}" in messages["ProcessEnded"]
    assert set(messages) == {"MemoryLimitExceeded", "ProcessEnded", "MemoryLimitKept"}
    assert environment.action_counts() == {("report", NAME): 1, ("terminate", NAME): 1}
    strangers = [fields for _, event, fields in environment.log.lines if "without a share" in event]
    assert strangers == [{"container": STRANGER, "gpu": GPU}]
    hosts = [fields["pid"] for _, event, fields in environment.log.lines if "on the host" in event]
    assert hosts == [os.getpid()]


def test_grace_period_continues_in_the_next_plugin(
    environment: Environment, sleeper: subprocess.Popen[bytes]
) -> None:
    environment.host.containers = {sleeper.pid: "web"}
    environment.host.uses = {sleeper.pid: 5 * GIB}
    record_container()
    slow = Guard(action=REPORT, grace=600, shortest_interval=0.05)

    async def first(_guard: GuardService) -> None:
        await until(lambda: any(mark.spent > 0.1 for mark in guard_marks.read()))

    environment.run(first, slow)
    (before,) = guard_marks.read()

    async def second(_guard: GuardService) -> None:
        await until(lambda: any(mark.spent > before.spent for mark in guard_marks.read()))

    environment.run(second, slow)
    assert guard_marks.read()[0].since == before.since
    assert environment.log.reasons() == ["MemoryLimitExceeded"]


def test_action_none_stops_the_guard_and_another_action_starts_it(
    environment: Environment, sleeper: subprocess.Popen[bytes]
) -> None:
    environment.host.containers = {sleeper.pid: "web"}
    environment.host.uses = {sleeper.pid: 5 * GIB}
    record_container()

    async def scenario(guard: GuardService) -> None:
        await until(guard_marks.read)
        guard.configure(Guard(action=NO_ACTION))
        await until(lambda: not guard_marks.read() and guard._wait is None)
        assert sleeper.poll() is None
        assert environment.log.reasons() == ["MemoryLimitExceeded"]
        guard.configure(FAST)
        await until(lambda: sleeper.poll() is not None)

    environment.run(scenario, Guard(action=REPORT, shortest_interval=0.05))


def test_container_keeps_its_limit_after_the_configuration_drops_limits(
    environment: Environment, sleeper: subprocess.Popen[bytes]
) -> None:
    """In a pod only the kubelet knows whether the container still runs."""
    environment.host.containers = {sleeper.pid: "web"}
    environment.host.uses = {sleeper.pid: 5 * GIB}
    environment.holdings = Holdings({"unit": Holder("default", "web", "main")})

    async def scenario(guard: GuardService) -> None:
        await until(lambda: environment.list_calls and guard._wait is None)
        guard.update(NodeSnapshot(), ())
        guard.on_poll()
        await asyncio.sleep(0.2)
        assert (environment.list_calls, environment.host.questions) == (1, 0)
        record_container(pid=2**22 + 1)
        guard.on_poll()
        await until(lambda: sleeper.poll() is not None)

    environment.run(scenario)


def test_container_older_than_the_limit_is_not_limited(
    environment: Environment, sleeper: subprocess.Popen[bytes]
) -> None:
    host = environment.host
    host.containers = {sleeper.pid: STRANGER}
    host.uses = {sleeper.pid: 5 * GIB}
    environment.holdings = Holdings({f"{GPU}::0": Holder("default", "old", "main")})
    own = {"pid": os.getpid(), "started": procfs.start_time(os.getpid())}
    names = {"namespace": "default", "pod": "old", "container": "main"}
    ledger.record("", STRANGER, {**own, **names})

    async def scenario(guard: GuardService) -> None:
        guard.on_poll()
        await until(lambda: host.questions > 6)
        assert sleeper.poll() is None
        assert not environment.log.lines
        share = guard_shares.GuardShare(STRANGER, ("default", "old", "main"), GPU, 4 * GIB, NAME,
                              is_certain=False)  # fmt: skip
        guard._report_began(GuardMark(share, 5 * GIB, 0.0))
        assert (
            "above the 4096 MiB of its units now; its mounts show no grant"
            in environment.log.lines[0][1]
        )

    environment.run(
        scenario, Guard(action=KILL, grace=0.0, shortest_interval=0.05, longest_interval=0.1)
    )


def test_late_sample_applies_the_current_action(
    environment: Environment, sleeper: subprocess.Popen[bytes]
) -> None:
    environment.host.containers = {sleeper.pid: "web"}
    environment.host.uses = {sleeper.pid: 5 * GIB}
    record_container()
    environment.host.answers.clear()

    async def scenario(guard: GuardService) -> None:
        await until(lambda: environment.host.questions)
        guard.configure(Guard(action=REPORT, grace=0.0))
        environment.host.answers.set()
        await until(guard_marks.read)
        assert not guard_marks.read()[0].sent

    environment.run(scenario, Guard(action=KILL, grace=0.0))
    assert sleeper.poll() is None


def test_hanging_driver_is_reported_once_and_blocks_one_thread(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    monkeypatch.setattr(guard_service, "_ROUND_TIMEOUT", 0.05)
    environment.host.containers = {sleeper.pid: "web"}
    environment.host.uses = {sleeper.pid: 5 * GIB}
    environment.host.answers.clear()
    record_container()

    async def scenario(guard: GuardService) -> None:
        await until(environment.log.reasons)
        for _ in range(5):
            guard.on_allocate()
            await asyncio.sleep(0.02)
        threads = [one for one in threading.enumerate() if one.name == "gpuhook-guard"]
        assert (len(threads), environment.host.questions) == (1, 1)
        assert environment.log.reasons() == ["LimitsNotWatched"]

    environment.run(scenario)  # returns although the driver hangs
    environment.host.answers.set()  # too late for a signal
    join_rounds()
    assert sleeper.poll() is None


def test_watched_containers_are_published_while_the_driver_answers(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    """While the driver hangs, or after the plugin's end, no container is watched."""
    environment.host.containers = {sleeper.pid: "web", os.getpid(): "web"}
    environment.host.uses = {sleeper.pid: GIB}
    record_container()

    async def scenario(guard: GuardService) -> None:
        await until(guard_state.watched)
        assert {key: one.action for key, one in guard_state.watched().items()} == {
            ("web", GPU): KILL
        }
        monkeypatch.setattr(guard_service, "_ROUND_TIMEOUT", 0.05)
        environment.host.answers.clear()
        await until(lambda: not guard_state.watched())
        environment.host.answers.set()
        await until(guard_state.watched)
        environment.host.error = fault("GH1204", path="nvml", reason="no driver")
        await until(lambda: not guard_state.watched())
        environment.host.error = None
        await until(guard_state.watched)

    environment.run(scenario)
    assert not guard_state.watched()


def test_plugin_in_its_own_pid_namespace_reports_it_once(environment: Environment) -> None:
    environment.host.fault = fault("GH1885", reason="the plugin is in a pid namespace of its own")
    record_container()

    async def scenario(guard: GuardService) -> None:
        await until(environment.log.reasons)
        for _ in range(3):
            guard.on_allocate()
            await until(lambda: not guard._wake.is_set())
        assert environment.host.questions == 0

    environment.run(scenario)
    assert environment.log.reasons() == ["LimitsNotWatched"]
    assert environment.log.lines[0][2]["code"] == "GH1885"


def test_unexpected_error_is_logged_once_and_retried(environment: Environment) -> None:
    environment.host.error = RuntimeError("a bug")
    record_container()

    async def scenario(_guard: GuardService) -> None:
        await until(lambda: environment.host.questions > 2)

    environment.run(scenario)
    assert [level for level, _, _ in environment.log.lines] == ["error"]


IDLE = """\
import asyncio, sys
from gpuhook.device_plugin.config.gpuhook_section import Guard
from gpuhook.device_plugin.guard.guard_service import GuardService
from gpuhook.device_plugin.node_snapshot import NodeSnapshot

async def idle():
    guard = GuardService(Guard(), "/none", None, None)
    guard.update(NodeSnapshot(), ())
    while guard._is_stale:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    await guard.end()

asyncio.run(idle())
print([name for name in sys.modules if name.startswith("gpuhook.device_plugin.guard.")])
"""


def test_idle_guard_loads_no_sampling_modules(environment: Environment) -> None:
    """They cost a megabyte of memory and start time."""
    done = subprocess.run([sys.executable, "-c", IDLE], check=True, capture_output=True, text=True)
    loaded = [f"gpuhook.device_plugin.guard.{name}" for name in ("ledger_limits", "guard_service")]
    assert done.stdout.strip() == str(loaded)
    assert done.stderr == ""


def test_node_of_a_dump_is_not_guarded(environment: Environment) -> None:
    record_container()

    async def scenario() -> None:
        guard = GuardService(
            FAST,
            "/socket",
            Notifier(environment.log),
            environment.observations,
            is_this_machine=False,
        )
        guard.update(NodeSnapshot(), (RESOURCE,))
        guard.on_allocate()
        guard.on_poll()
        await asyncio.sleep(0.05)
        await guard.end()

    asyncio.run(scenario())
    assert (environment.list_calls, environment.host.questions) == (0, 0)


def test_container_whose_processes_are_unknown_is_not_watched(
    environment: Environment, sleeper: subprocess.Popen[bytes]
) -> None:
    """Its first process is in a cgroup of another name, and its namespaces are not readable."""
    environment.host.uses = {sleeper.pid: GIB}
    record_container()

    async def scenario(guard: GuardService) -> None:
        await until(lambda: environment.host.questions > 2)
        lines = [line for line in environment.log.lines if "not watched" in line[1]]
        assert [(level, fields["container"]) for level, _, fields in lines] == [("warning", "web")]
        assert not guard_state.watched()

    environment.run(scenario)
