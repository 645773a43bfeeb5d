# SPDX-License-Identifier: Apache-2.0
"""The guard in the plugin's loop: when it looks, what people hear, what stops it."""

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
from gpuhook.device_plugin import driver_memory
from gpuhook.device_plugin.api_server.client import ApiServer
from gpuhook.device_plugin.api_server.node_events import NodeEvents
from gpuhook.device_plugin.config.gpuhook_section import KILL, NO_ACTION, REPORT, Guard
from gpuhook.device_plugin.guard import (
    container_processes,
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
from gpuhook.vendors.nvidia.nvml.gpu_usage import ProcessUse
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
        """Return the words of the news."""
        return [str(fields["reason"]) for _, _, fields in self.lines if "reason" in fields]


class Host(Processes):
    """Real processes, which are in the containers that a test says, and a driver that lists them.

    It hangs as long as there is no `answers`, and fails if there is an `error`.
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

    def processes(self, _uuid: str) -> tuple[ProcessUse, ...]:
        self.questions += 1
        self.answers.wait(60)
        if self.error is not None:
            raise self.error
        uses = self.uses.items()
        return tuple(ProcessUse(pid, used, None, None, "compute") for pid, used in uses)


class Room:
    """A guard and what is around it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host = Host()
        self.log = Log()
        self.observations = Counters()
        self.asked = 0
        self.holdings = Holdings()
        self.events: NodeEvents | None = None
        monkeypatch.setattr(driver_memory, "driver_usage", lambda _look: self.host)
        monkeypatch.setattr(container_processes, "Processes", lambda: self.host)
        monkeypatch.setattr(unit_holders, "ask", self._ask)

    async def _ask(self, socket: str) -> Holdings:
        self.asked += 1
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

    def counted(self) -> dict[tuple[str, ...], int]:
        return self.observations.snapshot().counters["guard_actions"]


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path))
    return Room(monkeypatch)


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


def enter(identity: str = "web", by: str = "", hard: int = 4 * GIB, pid: int = 0) -> None:
    own = {"pid": pid or os.getpid(), "started": procfs.start_time(os.getpid())}
    memory = [{"device": GPU, "hard": hard, "soft": hard, "by": by}]
    names = {"namespace": "default", "pod": identity, "container": "main"}
    ledger.record("", identity, {**own, **names, "memory": memory})


def test_nobody_is_asked_while_nobody_holds_a_share(room: Room) -> None:
    """The driver is not; the kubelet once, then when it has given something away."""

    async def scenario(guard: GuardService) -> None:
        await until(lambda: room.asked == 1 and guard._wait is None)
        enter("other", by="driver")
        guard.on_poll()
        await until(lambda: room.asked == 2)
        await asyncio.sleep(0.2)
        assert (room.asked, room.host.questions) == (2, 0)
        room.holdings = Holdings({f"{GPU}::0": Holder("default", "web", "main")})
        guard.on_allocate()
        await until(lambda: room.host.questions > 3)
        room.holdings = Holdings()
        guard.on_poll()
        await until(lambda: guard._wait is None)

    room.run(scenario)


def test_a_kubelet_that_tells_later_is_asked_again(room: Room) -> None:
    """It calls Allocate before it takes note of who has got what."""

    async def scenario(guard: GuardService) -> None:
        await until(lambda: room.asked == 1 and guard._wait is None)
        guard.on_allocate()
        await until(lambda: room.asked == 2 and guard._wait is None)
        room.holdings = Holdings({f"{GPU}::0": Holder("default", "web", "main")})
        guard.on_poll()
        await until(lambda: room.host.questions)
        room.holdings = Holdings()
        for _ in range(10):
            guard.on_poll()
            await asyncio.sleep(0.02)
        await until(lambda: guard._wait is None)
        asked = room.asked
        guard.on_poll()
        await asyncio.sleep(0.05)
        assert room.asked == asked

    room.run(scenario)


def test_who_is_above_its_limit_is_told_marked_and_ended(
    room: Room, sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    with serving(tmp_path) as stand_in:
        unwanted: list[GpuhookError] = []
        stand_in.otherwise = lambda asked: asked.reply({}, 201)
        room.events = NodeEvents(ApiServer(stand_in.access), "node-1", unwanted.append)
        host = room.host
        host.containers = {sleeper.pid: "web", 1: STRANGER}
        host.uses = {sleeper.pid: 5 * GIB, 1: 9 * GIB, os.getpid(): 9 * GIB}

        async def scenario(guard: GuardService) -> None:
            enter()
            guard.on_poll()
            await until(lambda: "MemoryLimitExceeded" in room.log.reasons())
            await until(lambda: sleeper.poll() is not None)
            del host.uses[sleeper.pid]
            await until(lambda: "MemoryLimitKept" in room.log.reasons())
            assert guard_marks.read() == ()

        room.run(scenario)
    assert unwanted == []
    told = {asked.body["reason"]: asked.body["message"] for asked in stand_in.asked}
    assert told["MemoryLimitExceeded"].startswith(
        "default/web/main uses 5120 MiB of GPU-1, above its limit of 4096 MiB"
    )
    assert f"SIGTERM for process {sleeper.pid}" in told["ProcessEnded"]
    assert set(told) == {"MemoryLimitExceeded", "ProcessEnded", "MemoryLimitKept"}
    assert room.counted() == {("report", NAME): 1, ("terminate", NAME): 1}
    strangers = [fields for _, event, fields in room.log.lines if "without a share" in event]
    assert strangers == [{"container": STRANGER, "gpu": GPU}]
    hosts = [fields["pid"] for _, event, fields in room.log.lines if "of the host" in event]
    assert hosts == [os.getpid()]


def test_the_grace_goes_on_in_the_next_plugin(room: Room, sleeper: subprocess.Popen[bytes]) -> None:
    room.host.containers = {sleeper.pid: "web"}
    room.host.uses = {sleeper.pid: 5 * GIB}
    enter()
    slow = Guard(action=REPORT, grace=600, shortest_interval=0.05)

    async def first(_guard: GuardService) -> None:
        await until(lambda: any(mark.spent > 0.1 for mark in guard_marks.read()))

    room.run(first, slow)
    (before,) = guard_marks.read()

    async def second(_guard: GuardService) -> None:
        await until(lambda: any(mark.spent > before.spent for mark in guard_marks.read()))

    room.run(second, slow)
    assert guard_marks.read()[0].since == before.since
    assert room.log.reasons() == ["MemoryLimitExceeded"]


def test_none_ends_it_at_once_and_another_action_begins_it(
    room: Room, sleeper: subprocess.Popen[bytes]
) -> None:
    room.host.containers = {sleeper.pid: "web"}
    room.host.uses = {sleeper.pid: 5 * GIB}
    enter()

    async def scenario(guard: GuardService) -> None:
        await until(guard_marks.read)
        guard.configure(Guard(action=NO_ACTION))
        await until(lambda: not guard_marks.read() and guard._wait is None)
        assert sleeper.poll() is None
        assert room.log.reasons() == ["MemoryLimitExceeded"]
        guard.configure(FAST)
        await until(lambda: sleeper.poll() is not None)

    room.run(scenario, Guard(action=REPORT, shortest_interval=0.05))


def test_who_began_with_a_limit_keeps_it_when_nothing_is_limited_any_more(
    room: Room, sleeper: subprocess.Popen[bytes]
) -> None:
    """Whether it lives only the kubelet tells: in a pod the runtimes' state is not to be seen."""
    room.host.containers = {sleeper.pid: "web"}
    room.host.uses = {sleeper.pid: 5 * GIB}
    room.holdings = Holdings({"unit": Holder("default", "web", "main")})

    async def scenario(guard: GuardService) -> None:
        await until(lambda: room.asked and guard._wait is None)
        guard.update(NodeSnapshot(), ())
        guard.on_poll()
        await asyncio.sleep(0.2)
        assert (room.asked, room.host.questions) == (1, 0)
        enter(pid=2**22 + 1)
        guard.on_poll()
        await until(lambda: sleeper.poll() is not None)

    room.run(scenario)


def test_who_is_older_than_its_limit_has_none(room: Room, sleeper: subprocess.Popen[bytes]) -> None:
    host = room.host
    host.containers = {sleeper.pid: STRANGER}
    host.uses = {sleeper.pid: 5 * GIB}
    room.holdings = Holdings({f"{GPU}::0": Holder("default", "old", "main")})
    own = {"pid": os.getpid(), "started": procfs.start_time(os.getpid())}
    names = {"namespace": "default", "pod": "old", "container": "main"}
    ledger.record("", STRANGER, {**own, **names})

    async def scenario(guard: GuardService) -> None:
        guard.on_poll()
        await until(lambda: host.questions > 6)
        assert sleeper.poll() is None
        assert not room.log.lines
        share = guard_shares.GuardShare(STRANGER, ("default", "old", "main"), GPU, 4 * GIB, NAME,
                              is_certain=False)  # fmt: skip
        guard._report_began(GuardMark(share, 5 * GIB, 0.0))
        assert (
            "above the 4096 MiB of its units now; its mounts show no grant" in room.log.lines[0][1]
        )

    room.run(scenario, Guard(action=KILL, grace=0.0, shortest_interval=0.05, longest_interval=0.1))


def test_what_is_no_longer_wanted_is_not_done_by_a_look_that_comes_late(
    room: Room, sleeper: subprocess.Popen[bytes]
) -> None:
    room.host.containers = {sleeper.pid: "web"}
    room.host.uses = {sleeper.pid: 5 * GIB}
    enter()
    room.host.answers.clear()

    async def scenario(guard: GuardService) -> None:
        await until(lambda: room.host.questions)
        guard.configure(Guard(action=REPORT, grace=0.0))
        room.host.answers.set()
        await until(guard_marks.read)
        assert not guard_marks.read()[0].sent

    room.run(scenario, Guard(action=KILL, grace=0.0))
    assert sleeper.poll() is None


def test_a_driver_that_hangs_is_told_once_and_has_one_thread(
    room: Room, monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    monkeypatch.setattr(guard_service, "_ROUND_TIMEOUT", 0.05)
    room.host.containers = {sleeper.pid: "web"}
    room.host.uses = {sleeper.pid: 5 * GIB}
    room.host.answers.clear()
    enter()

    async def scenario(guard: GuardService) -> None:
        await until(room.log.reasons)
        for _ in range(5):
            guard.on_allocate()
            await asyncio.sleep(0.02)
        threads = [one for one in threading.enumerate() if one.name == "gpuhook-guard"]
        assert (len(threads), room.host.questions) == (1, 1)
        assert room.log.reasons() == ["LimitsNotWatched"]

    room.run(scenario)  # and ends
    room.host.answers.set()  # too late to end anybody
    for thread in threading.enumerate():
        if thread.name == "gpuhook-guard":
            thread.join(10)
    assert sleeper.poll() is None


def test_others_read_whom_the_guard_watches_while_it_can(
    room: Room, monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    """While the driver hangs, or after the plugin's end, no container is watched."""
    room.host.containers = {sleeper.pid: "web"}
    room.host.uses = {sleeper.pid: GIB}
    enter()

    async def scenario(guard: GuardService) -> None:
        await until(guard_state.watched)
        assert {key: one.action for key, one in guard_state.watched().items()} == {
            ("web", GPU): KILL
        }
        monkeypatch.setattr(guard_service, "_ROUND_TIMEOUT", 0.05)
        room.host.answers.clear()
        await until(lambda: not guard_state.watched())
        room.host.answers.set()
        await until(guard_state.watched)
        room.host.error = fault("GH1204", path="nvml", reason="no driver")
        await until(lambda: not guard_state.watched())
        room.host.error = None
        await until(guard_state.watched)

    room.run(scenario)
    assert not guard_state.watched()


def test_a_plugin_that_cannot_know_who_is_who_says_so_once(room: Room) -> None:
    room.host.fault = fault("GH1885", reason="the plugin is in a pid namespace of its own")
    enter()

    async def scenario(guard: GuardService) -> None:
        await until(room.log.reasons)
        for _ in range(3):
            guard.on_allocate()
            await until(lambda: not guard._wake.is_set())
        assert room.host.questions == 0

    room.run(scenario)
    assert room.log.reasons() == ["LimitsNotWatched"]
    assert room.log.lines[0][2]["code"] == "GH1885"


def test_a_fault_of_ours_is_told_and_tried_again(room: Room) -> None:
    room.host.error = RuntimeError("a bug")
    enter()

    async def scenario(_guard: GuardService) -> None:
        await until(lambda: room.host.questions > 2)

    room.run(scenario)
    assert [level for level, _, _ in room.log.lines] == ["error"]


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


def test_what_it_takes_to_watch_is_not_loaded_for_nobody(room: Room) -> None:
    """It is a megabyte, and some of the plugin's start."""
    done = subprocess.run([sys.executable, "-c", IDLE], check=True, capture_output=True, text=True)
    loaded = [f"gpuhook.device_plugin.guard.{name}" for name in ("ledger_limits", "guard_service")]
    assert done.stdout.strip() == str(loaded)
    assert done.stderr == ""


def test_a_dump_is_not_guarded(room: Room) -> None:
    enter()

    async def scenario() -> None:
        guard = GuardService(
            FAST, "/socket", Notifier(room.log), room.observations, is_this_machine=False
        )
        guard.update(NodeSnapshot(), (RESOURCE,))
        guard.on_allocate()
        guard.on_poll()
        await asyncio.sleep(0.05)
        await guard.end()

    asyncio.run(scenario())
    assert (room.asked, room.host.questions) == (0, 0)
