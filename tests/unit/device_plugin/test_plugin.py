# SPDX-License-Identifier: Apache-2.0
"""The turns of the device plugin: what fails in them, and what does not wait for their end."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuhook.device_plugin import active_config, node_snapshot, reconcile
from gpuhook.device_plugin.api_server.api_clients import ApiClients
from gpuhook.device_plugin.config.config_source import ConfigSource
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.launch_options import Launch
from gpuhook.device_plugin.health import health_service
from gpuhook.device_plugin.mps.mps_service import MpsService
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.device_plugin.notifier import Notifier
from gpuhook.device_plugin.plugin import Plugin
from gpuhook.device_plugin.triggers import Reason, Triggers
from gpuhook.errors import GpuhookError, fault

CONFIG = """\
version: v1
flags: {failOnInitError: false}
gpuhook: {metrics: {address: ""}, health: {pollInterval: 100ms}}
"""


class Log:
    """Records log lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, _level: str) -> Callable[..., None]:
        return lambda event, **fields: self.lines.append((event, fields))

    def told(self, words: str) -> int:
        """Return how many lines have these words."""
        return sum(words in event for event, _ in self.lines)


class Turns:
    """A plugin without a kubelet, on a T4 of a dump, and how the turns are reached from a test."""

    def __init__(self, place: Path) -> None:
        self.config = place / "config.yaml"
        self.config.write_text(CONFIG)
        directory = place / "plugins"
        directory.mkdir()
        self.launch = Launch(
            ConfigSource(file=str(self.config)),
            kubelet_socket="",
            plugin_directory=str(directory),
            inventory="t4",
        )
        self.log = Log()

    def run(self, scenario: Callable[[Turns], Awaitable[None]]) -> None:
        """Run `scenario` beside a plugin, and stop that."""
        asyncio.run(self._run(scenario))

    async def _run(self, scenario: Callable[[Turns], Awaitable[None]]) -> None:
        self.triggers = Triggers()
        connections = ApiClients(self.launch, self.log)
        loaded = active_config.load(self.launch, None, "")
        news = Notifier(self.log)
        self.plugin = Plugin(self.launch, loaded, connections, self.triggers, news)
        self.keeping = asyncio.ensure_future(self.plugin.keep())
        try:
            await scenario(self)
        finally:
            self.triggers.pull(Reason.STOP)
            try:
                await asyncio.wait_for(self.keeping, 30)
            finally:
                await self.plugin.end()

    def offered(self) -> int:
        """Return how many units are on offer."""
        return sum(len(o.server.resource.units) for o in self.plugin._sockets._offerings.values())

    async def until(self, wanted: Callable[[], object]) -> None:
        """Wait for `wanted()` while the plugin runs."""
        for _ in range(2000):
            if self.keeping.done():
                self.keeping.result()
            if wanted():
                return
            await asyncio.sleep(0.005)
        raise TimeoutError


@pytest.fixture
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Turns:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    return Turns(tmp_path)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event that a driver hangs on, until the test ends."""
    event = threading.Event()
    yield event
    event.set()


class Failing:
    """Replaces a function, and raises `error` while it is set."""

    def __init__(self, function: Callable[..., Any], error: Exception | None) -> None:
        self.function, self.error, self.calls = function, error, 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.function(*arguments)


FAULTS = [
    OSError(28, "No space left on device"),
    AttributeError("a fault of ours"),
    ValueError("what NVML says is garbage"),
    fault("GH1856", channel=0, path="/dev/nvidia-caps-imex-channels/channel0"),
]


@pytest.mark.parametrize("error", FAULTS, ids=repr)
@pytest.mark.parametrize("where", [(node_snapshot, "take"), (reconcile, "reconcile")])
def test_turn_that_fails_is_taken_again(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, error: Exception, where: tuple[Any, str]
) -> None:
    """No event reports that a full disk or a missing channel is fixed: the turn is retried."""
    failing = Failing(getattr(*where), error)
    monkeypatch.setattr(*where, failing)

    async def scenario(turns: Turns) -> None:
        await turns.until(lambda: failing.calls >= 3)
        assert turns.offered() == 0
        assert turns.log.told(str(getattr(error, "message", error))) == 1
        failing.error = None
        await turns.until(turns.offered)

    turns.run(scenario)


@pytest.mark.parametrize("error", FAULTS, ids=repr)
def test_turn_that_fails_takes_nothing_away(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    failing = Failing(node_snapshot.take, None)
    monkeypatch.setattr(node_snapshot, "take", failing)

    async def scenario(turns: Turns) -> None:
        await turns.until(turns.offered)
        failing.error, calls = error, failing.calls
        turns.triggers.pull(Reason.NODE)
        await turns.until(lambda: failing.calls > calls)
        await turns.until(lambda: turns.log.told(str(getattr(error, "message", error))))
        assert turns.offered() == 1

    turns.run(scenario)


@pytest.mark.parametrize("error", FAULTS, ids=repr)
def test_first_turn_that_fails_ends_the_plugin_where_that_is_asked_for(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    turns.config.write_text(CONFIG.replace("false", "true"))
    monkeypatch.setattr(reconcile, "reconcile", Failing(reconcile.reconcile, error))

    async def scenario(turns: Turns) -> None:
        await asyncio.wait({turns.keeping})

    with pytest.raises(type(error)):
        turns.run(scenario)


def test_failed_health_book_ends_nothing(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(turns: Turns) -> None:
        await turns.until(turns.offered)
        failing = Failing(turns.plugin._health.unhealthy, KeyError("a fault of ours"))
        monkeypatch.setattr(turns.plugin._health, "unhealthy", failing)
        turns.triggers.pull(Reason.HEALTH)
        await turns.until(lambda: turns.log.told("a fault of ours"))
        failing.error = None
        assert turns.offered() == 1

    turns.run(scenario)


def _hanging(function: Callable[..., Any], gate: threading.Event) -> Callable[..., Any]:
    def hang(*arguments: Any) -> Any:
        gate.wait()
        return function(*arguments)

    return hang


def test_driver_that_hangs_does_not_keep_the_plugin_from_ending(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    entered = threading.Event()
    monkeypatch.setattr(node_snapshot, "take", _hanging(lambda *_: entered.set(), gate))

    async def scenario(turns: Turns) -> None:
        await asyncio.sleep(0.05)

    turns.run(scenario)  # returns, though the look never does
    assert not gate.is_set()
    assert not entered.is_set()


def test_health_does_not_wait_for_a_look_that_hangs(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    looking = threading.Event()
    look = node_snapshot.take

    async def scenario(turns: Turns) -> None:
        await turns.until(turns.offered)

        def hang(launch: Launch, configuration: Configuration) -> NodeSnapshot:
            looking.set()
            gate.wait()
            return look(launch, configuration)

        monkeypatch.setattr(node_snapshot, "take", hang)
        turns.triggers.pull(Reason.NODE)
        await turns.until(looking.is_set)
        (gpu,) = turns.plugin._snapshot.node.gpus
        turns.plugin._health._health.mark_lost(str(gpu.uuid), "it is gone", 1.0)
        turns.plugin._health._publish()
        await turns.until(lambda: turns.plugin._answers.known.context.unhealthy)
        assert not gate.is_set()

    turns.run(scenario)


def test_look_that_hangs_is_told_and_leaves_all_unhealthy_until_it_ends(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    async def scenario(turns: Turns) -> None:
        await turns.until(turns.offered)
        # Not before: on a busy machine the plugin's own first look takes longer.
        monkeypatch.setattr(health_service, "_DRIVER_TIMEOUT", 0.05)
        monkeypatch.setattr(node_snapshot, "take", _hanging(node_snapshot.take, gate))
        turns.triggers.pull(Reason.NODE)
        await turns.until(lambda: turns.plugin._answers.known.context.unhealthy)
        assert turns.log.told("has not answered for 0.05 seconds: no GPU is assigned") == 1
        assert turns.offered() == 1
        gate.set()
        await turns.until(lambda: not turns.plugin._answers.known.context.unhealthy)

    turns.run(scenario)


def test_health_that_cannot_be_told_during_a_look_does_not_begin_a_second_one(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    """Two threads would set up the same daemons and files."""
    now, most = 0, 0
    look = node_snapshot.take

    def counted(launch: Launch, configuration: Configuration) -> NodeSnapshot:
        nonlocal now, most
        now += 1
        most = max(most, now)
        gate.wait()
        now -= 1
        return look(launch, configuration)

    async def scenario(turns: Turns) -> None:
        await turns.until(turns.offered)
        monkeypatch.setattr(node_snapshot, "take", counted)
        turns.triggers.pull(Reason.NODE)
        await turns.until(lambda: now)
        failing = Failing(turns.plugin._health.unhealthy, KeyError("a fault of ours"))
        monkeypatch.setattr(turns.plugin._health, "unhealthy", failing)

        def told() -> bool:
            turns.triggers.pull(Reason.HEALTH, Reason.NODE)
            return failing.calls > 60

        await turns.until(told)
        assert turns.log.told("a fault of ours") == 1
        failing.error = None
        gate.set()
        await turns.until(lambda: not now)
        assert most == 1

    turns.run(scenario)


def test_daemon_that_is_looked_after_is_no_reason_to_tell_a_failure_again(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(node_snapshot.take, None)
    monkeypatch.setattr(node_snapshot, "take", failing)
    monkeypatch.setattr(MpsService, "is_needed", True)

    async def scenario(turns: Turns) -> None:
        await turns.until(turns.offered)
        failing.error, calls = OSError(28, "No space left on device"), failing.calls
        turns.triggers.pull(Reason.NODE)
        await turns.until(lambda: failing.calls >= calls + 5)
        assert turns.log.told("No space left") == 1

    turns.run(scenario)


def test_daemons_that_cannot_be_looked_after_do_not_put_off_the_next_look(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, outcomes = Failing(node_snapshot.take, None), Failing(reconcile.reconcile, None)
    monkeypatch.setattr(node_snapshot, "take", looks)
    monkeypatch.setattr(reconcile, "reconcile", outcomes)
    monkeypatch.setattr(MpsService, "is_needed", True)

    async def scenario(turns: Turns) -> None:
        await turns.until(turns.offered)
        outcomes.error, calls = OSError(28, "No space left on device"), looks.calls
        turns.triggers.pull(Reason.NODE)
        await turns.until(lambda: looks.calls >= calls + 4)

    turns.run(scenario)


def test_what_is_pulled_during_a_turn_is_another_turn(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    calls = 0
    look = node_snapshot.take

    def counted(launch: Launch, configuration: Configuration) -> NodeSnapshot:
        nonlocal calls
        calls += 1
        if calls == 2:
            gate.wait()
        return look(launch, configuration)

    monkeypatch.setattr(node_snapshot, "take", counted)

    async def scenario(turns: Turns) -> None:
        await turns.until(turns.offered)
        turns.triggers.pull(Reason.NODE)
        await turns.until(lambda: calls == 2)
        turns.triggers.pull(Reason.NODE, Reason.HEALTH)
        gate.set()
        await turns.until(lambda: calls == 3)

    turns.run(scenario)


def test_driver_that_goes_leaves_all_unhealthy_until_it_is_back(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = node_snapshot.take
    trouble = fault("GH1204", path="libnvidia-ml.so.1", reason="Driver Not Loaded")
    is_gone = False

    def looked(launch: Launch, configuration: Configuration) -> NodeSnapshot:
        found = look(launch, configuration)
        return replace(NodeSnapshot(), trouble=trouble) if is_gone else found

    monkeypatch.setattr(node_snapshot, "take", looked)

    async def scenario(turns: Turns) -> None:
        nonlocal is_gone
        await turns.until(turns.offered)
        is_gone = True
        turns.triggers.pull(Reason.NODE)
        await turns.until(lambda: turns.plugin._answers.known.context.unhealthy)
        assert turns.offered() == 1
        is_gone = False
        await turns.until(lambda: not turns.plugin._answers.known.context.unhealthy)

    turns.run(scenario)


def test_what_answers_go_by_is_what_is_offered(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configuration that the node contradicts changes neither the offer nor labels of it."""
    failing = Failing(reconcile.reconcile, None)
    monkeypatch.setattr(reconcile, "reconcile", failing)

    async def scenario(turns: Turns) -> None:
        await turns.until(turns.offered)
        failing.error = fault("GH1856", channel=7, path="/dev/none")
        text = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n"
        turns.config.write_text(CONFIG + text)
        await turns.until(lambda: turns.log.told("channel 7"))
        assert turns.offered() == 1
        assert turns.plugin._answers.known.configuration.sharing.strategy == "none"
        failing.error = None
        await turns.until(lambda: turns.offered() == 2)
        assert turns.plugin._answers.known.configuration.sharing.strategy == "time-slicing"

    turns.run(scenario)


def test_node_that_has_nothing_to_offer_is_told_once(turns: Turns) -> None:
    """From the start, and when the last GPU goes."""
    nothing = CONFIG.replace("gpuhook: {", "gpuhook: {excludeDevices: [0], ")

    async def scenario(turns: Turns) -> None:
        await turns.until(lambda: turns.log.told("offers no GPU") == 1)
        turns.config.write_text(CONFIG)
        await turns.until(turns.offered)
        turns.config.write_text(nothing)
        await turns.until(lambda: turns.log.told("offers no GPU") == 2)
        turns.triggers.pull(Reason.NODE)
        await turns.until(lambda: not turns.offered())
        assert turns.log.told("offers no GPU") == 2

    turns.config.write_text(nothing)
    turns.run(scenario)


def test_port_that_is_free_again_is_taken(turns: Turns) -> None:
    """The plugin before this one may end a moment later than this one starts."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        turns.config.write_text(CONFIG.replace('address: ""', f'address: "127.0.0.1:{port}"'))

        async def scenario(turns: Turns) -> None:
            await turns.until(turns.offered)
            await turns.until(lambda: turns.log.told(str(port)))
            other.close()
            turns.triggers.pull(Reason.NODE)
            await turns.until(
                lambda: ("metrics", {"address": f"127.0.0.1:{port}"}) in turns.log.lines
            )

        turns.run(scenario)


def test_same_bad_configuration_is_news_after_a_good_one(turns: Turns) -> None:
    def unchanged() -> int:
        return turns.plugin._counters.snapshot().counters["config_reloads"].get(("unchanged",), 0)

    async def scenario(turns: Turns) -> None:
        await turns.until(turns.offered)
        await turns.until(unchanged)
        turns.config.write_text(CONFIG.replace("v1", "v0"))
        await turns.until(lambda: turns.log.told("has an error") == 1)
        before = unchanged()
        turns.config.write_text(CONFIG)
        await turns.until(lambda: unchanged() > before)
        turns.config.write_text(CONFIG.replace("v1", "v0"))
        await turns.until(lambda: turns.log.told("has an error") == 2)

    turns.run(scenario)


def test_who_asks_hears_what_comes_of_it(turns: Turns) -> None:
    """A file with the same fault is reported once, and again at SIGHUP."""

    async def scenario(turns: Turns) -> None:
        await turns.until(turns.offered)
        turns.config.write_text("sharing: 1\n")
        await turns.until(lambda: turns.log.told("must be a mapping") == 1)
        turns.triggers.pull(Reason.CONFIGURATION)
        turns.triggers.pull(Reason.RELOAD, Reason.CONFIGURATION, Reason.NODE)
        await turns.until(lambda: turns.log.told("must be a mapping") == 2)
        assert turns.log.told("SIGHUP") == 1
        turns.config.write_text(CONFIG)  # and that it is well again, though nothing is new
        await turns.until(lambda: turns.log.told(", as before") == 1)
        turns.triggers.pull(Reason.RELOAD, Reason.CONFIGURATION, Reason.NODE)
        await turns.until(lambda: turns.log.told(", as before") == 2)
        assert turns.log.told("SIGHUP") == 2

    turns.run(scenario)


def test_node_that_offers_nothing_says_so(turns: Turns) -> None:
    """A configuration that excludes all GPUs is applied, and the empty offer is reported."""
    turns.config.write_text(CONFIG.replace("gpuhook: {", "gpuhook: {excludeDevices: [0], "))

    async def scenario(turns: Turns) -> None:
        await turns.until(lambda: turns.log.told("this node offers no GPU"))
        assert turns.log.told(f"configuration {turns.config}, ") == 1
        turns.config.write_text(CONFIG)
        await turns.until(turns.offered)
        turns.config.write_text(CONFIG.replace("gpuhook: {", "gpuhook: {excludeDevices: [0], "))
        await turns.until(lambda: turns.log.told("this node offers no GPU") == 2)

    turns.run(scenario)


def test_node_of_which_nothing_is_known_yet_is_not_said_to_offer_nothing(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(node_snapshot.take, fault("GH1204", path="libnvidia-ml.so.1", reason="gone"))
    monkeypatch.setattr(node_snapshot, "take", failing)

    async def scenario(turns: Turns) -> None:
        await turns.until(lambda: failing.calls >= 2)
        failing.error = None
        await turns.until(turns.offered)

    turns.run(scenario)
    assert not turns.log.told("this node offers no GPU")


MEMORY = "sharing: {{timeSlicing: {{resources: [{{name: nvidia.com/gpu, replicas: 4, {}}}]}}}}\n"
FAIR, TOO_MUCH = MEMORY.format("memory: fair"), MEMORY.format("memory: 4Gi")


def test_configuration_that_the_node_cannot_have_is_refused_as_a_whole(turns: Turns) -> None:
    """What is in force, what metrics say of it and what is offered are of one configuration."""

    def counted(what: str) -> int:
        return turns.plugin._counters.snapshot().counters["config_reloads"].get((what,), 0)

    async def scenario(turns: Turns) -> None:
        await turns.until(lambda: turns.offered() == 4)
        before = turns.plugin._counters.snapshot().configuration
        guard = "gpuhook: {guard: {action: terminate}, "
        turns.config.write_text(CONFIG.replace("gpuhook: {", guard) + TOO_MUCH)
        await turns.until(lambda: turns.log.told("4 replicas of 4096 MiB") == 1)
        assert counted("refused") == 1
        assert counted("applied") == 0
        assert turns.plugin._counters.snapshot().configuration == before
        assert turns.plugin._guard._settings.action == "report"
        assert turns.plugin._config.loaded.configuration.own.guard.action == "report"
        (fields,) = [f for line, f in turns.log.lines if "4 replicas of 4096" in line]
        assert fields["reason"] == "ConfigRefused"
        assert fields["at"] == f"{turns.config}:4:37"
        assert fields["goes_on"] == turns.plugin._config.loaded.digest
        assert not [f for _, f in turns.log.lines if f.get("reason") == "NotOffered"]
        turns.config.write_text(CONFIG + FAIR.replace("4", "2"))
        await turns.until(lambda: turns.offered() == 2)
        assert counted("applied") == 1

    turns.config.write_text(CONFIG + FAIR)
    turns.run(scenario)


def test_refused_configuration_is_tried_again_with_the_node(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card with more memory may come: then what was refused is right."""
    look, is_larger = node_snapshot.take, False

    def looked(launch: Launch, configuration: Configuration) -> NodeSnapshot:
        found = look(launch, configuration)
        gpus = tuple(replace(gpu, memory_bytes=80 << 30) for gpu in found.node.gpus)
        return replace(found, node=replace(found.node, gpus=gpus)) if is_larger else found

    monkeypatch.setattr(node_snapshot, "take", looked)

    async def scenario(turns: Turns) -> None:
        nonlocal is_larger
        await turns.until(lambda: turns.offered() == 1)
        turns.config.write_text(CONFIG + TOO_MUCH)
        await turns.until(lambda: turns.log.told("4 replicas of 4096 MiB") == 1)
        turns.triggers.pull(Reason.NODE)
        await asyncio.sleep(0.1)
        assert turns.offered() == 1
        assert turns.log.told("4 replicas of 4096 MiB") == 1
        is_larger = True
        turns.triggers.pull(Reason.NODE)
        await turns.until(lambda: turns.offered() == 4)
        assert turns.plugin._counters.snapshot().counters["config_reloads"][("refused",)] == 1

    turns.run(scenario)


@pytest.mark.parametrize("is_fatal", [True, False])
def test_start_with_what_the_node_cannot_have_is_not_said_to_be_applied(
    turns: Turns, is_fatal: bool
) -> None:
    text = CONFIG.replace("false", "true") if is_fatal else CONFIG
    turns.config.write_text(text + TOO_MUCH)

    async def scenario(turns: Turns) -> None:
        if is_fatal:
            await asyncio.wait({turns.keeping})
            return
        await turns.until(lambda: turns.log.told("4 replicas of 4096 MiB"))
        turns.config.write_text(CONFIG + FAIR)
        await turns.until(lambda: turns.offered() == 4)
        assert turns.log.told(f"configuration {turns.config}, ") == 1

    if is_fatal:
        with pytest.raises(GpuhookError, match=r"timeSlicing\.resources\[0\]: nvidia\.com/gpu: 4"):
            turns.run(scenario)
        assert not turns.log.told(f"configuration {turns.config}, ")
    else:
        turns.run(scenario)
    (told, *_) = [f for line, f in turns.log.lines if "4 replicas of 4096" in line]
    assert told["reason"] == "ConfigRefused"
    assert told["at"] == f"{turns.config}:4:37"
