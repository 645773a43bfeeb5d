# SPDX-License-Identifier: Apache-2.0
"""The turns of the device plugin: failures, hanging drivers, and changed configurations."""

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
from gpuhook.vendors.nvidia.inventory.inventory import Driver, Node
from gpuhook.vendors.nvidia.plugin import nvidia_part

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

    def count(self, words: str) -> int:
        """Return the number of lines with these words."""
        return sum(words in event for event, _ in self.lines)


class RunningPlugin:
    """A plugin without a kubelet, on the T4 of a dump."""

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

    def run(self, scenario: Callable[[RunningPlugin], Awaitable[None]]) -> None:
        """Run `scenario` with a running plugin, and stop the plugin."""
        asyncio.run(self._run(scenario))

    async def _run(self, scenario: Callable[[RunningPlugin], Awaitable[None]]) -> None:
        self.triggers = Triggers()
        connections = ApiClients(self.launch, self.log)
        loaded = active_config.load(self.launch, None, "")
        news = Notifier(self.log)
        self.plugin = Plugin(self.launch, loaded, connections, self.triggers, news)
        self.task = asyncio.ensure_future(self.plugin.keep())
        try:
            await scenario(self)
        finally:
            self.triggers.pull(Reason.STOP)
            try:
                await asyncio.wait_for(self.task, 30)
            finally:
                await self.plugin.end()

    def offered(self) -> int:
        """Return the number of offered units."""
        return sum(len(o.server.resource.units) for o in self.plugin._sockets._offerings.values())

    async def until(self, wanted: Callable[[], object]) -> None:
        for _ in range(2000):
            if self.task.done():
                self.task.result()
            if wanted():
                return
            await asyncio.sleep(0.005)
        raise TimeoutError


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunningPlugin:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    return RunningPlugin(tmp_path)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Yield an event that blocks a driver call until the test ends."""
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
def test_failed_turn_is_retried(
    running: RunningPlugin,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    where: tuple[Any, str],
) -> None:
    """No event reports a freed disk or a created channel."""
    failing = Failing(getattr(*where), error)
    monkeypatch.setattr(*where, failing)

    async def scenario(running: RunningPlugin) -> None:
        await running.until(lambda: failing.calls >= 3)
        assert running.offered() == 0
        assert running.log.count(str(getattr(error, "message", error))) == 1
        failing.error = None
        await running.until(running.offered)

    running.run(scenario)


@pytest.mark.parametrize("error", FAULTS, ids=repr)
def test_failed_turn_keeps_the_offer(
    running: RunningPlugin, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    failing = Failing(node_snapshot.take, None)
    monkeypatch.setattr(node_snapshot, "take", failing)

    async def scenario(running: RunningPlugin) -> None:
        await running.until(running.offered)
        failing.error, calls = error, failing.calls
        running.triggers.pull(Reason.NODE)
        await running.until(lambda: failing.calls > calls)
        await running.until(lambda: running.log.count(str(getattr(error, "message", error))))
        assert running.offered() == 1

    running.run(scenario)


@pytest.mark.parametrize("error", FAULTS, ids=repr)
def test_failed_first_turn_ends_the_plugin_if_configured(
    running: RunningPlugin, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    running.config.write_text(CONFIG.replace("false", "true"))
    monkeypatch.setattr(reconcile, "reconcile", Failing(reconcile.reconcile, error))

    async def scenario(running: RunningPlugin) -> None:
        await asyncio.wait({running.task})

    with pytest.raises(type(error)):
        running.run(scenario)


def test_error_in_health_is_logged_and_keeps_the_offer(
    running: RunningPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(running: RunningPlugin) -> None:
        await running.until(running.offered)
        failing = Failing(running.plugin._health.unhealthy, KeyError("a fault of ours"))
        monkeypatch.setattr(running.plugin._health, "unhealthy", failing)
        running.triggers.pull(Reason.HEALTH)
        await running.until(lambda: running.log.count("a fault of ours"))
        failing.error = None
        assert running.offered() == 1

    running.run(scenario)


def _blocked(function: Callable[..., Any], gate: threading.Event) -> Callable[..., Any]:
    def hang(*arguments: Any) -> Any:
        gate.wait()
        return function(*arguments)

    return hang


def test_hanging_driver_does_not_block_the_end(
    running: RunningPlugin, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    entered = threading.Event()
    monkeypatch.setattr(node_snapshot, "take", _blocked(lambda *_: entered.set(), gate))

    async def scenario(running: RunningPlugin) -> None:
        await asyncio.sleep(0.05)

    running.run(scenario)  # returns although the snapshot does not
    assert not gate.is_set()
    assert not entered.is_set()


def test_health_is_published_during_a_hanging_snapshot(
    running: RunningPlugin, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    entered = threading.Event()
    take_snapshot = node_snapshot.take

    async def scenario(running: RunningPlugin) -> None:
        await running.until(running.offered)

        def hang(launch: Launch, configuration: Configuration) -> NodeSnapshot:
            entered.set()
            gate.wait()
            return take_snapshot(launch, configuration)

        monkeypatch.setattr(node_snapshot, "take", hang)
        running.triggers.pull(Reason.NODE)
        await running.until(entered.is_set)
        (gpu,) = nvidia_part.own_part(running.plugin._snapshot.parts).node.gpus
        running.plugin._health._health.mark_lost(str(gpu.uuid), "it is gone", 1.0)
        running.plugin._health._publish()
        await running.until(lambda: running.plugin._answers.known.context.unhealthy)
        assert not gate.is_set()

    running.run(scenario)


def test_hanging_snapshot_makes_all_gpus_unhealthy_until_it_ends(
    running: RunningPlugin, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    async def scenario(running: RunningPlugin) -> None:
        await running.until(running.offered)
        # Not earlier: on a busy machine the first snapshot takes longer.
        monkeypatch.setattr(health_service, "_DRIVER_TIMEOUT", 0.05)
        monkeypatch.setattr(node_snapshot, "take", _blocked(node_snapshot.take, gate))
        running.triggers.pull(Reason.NODE)
        await running.until(lambda: running.plugin._answers.known.context.unhealthy)
        assert running.log.count("has not answered for 0.05 seconds: no GPU is assigned") == 1
        assert running.offered() == 1
        gate.set()
        await running.until(lambda: not running.plugin._answers.known.context.unhealthy)

    running.run(scenario)


def test_error_in_health_during_a_snapshot_starts_no_second_snapshot(
    running: RunningPlugin, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    """Two threads would set up the same daemons and files."""
    now, most = 0, 0
    take_snapshot = node_snapshot.take

    def counted(launch: Launch, configuration: Configuration) -> NodeSnapshot:
        nonlocal now, most
        now += 1
        most = max(most, now)
        gate.wait()
        now -= 1
        return take_snapshot(launch, configuration)

    async def scenario(running: RunningPlugin) -> None:
        await running.until(running.offered)
        monkeypatch.setattr(node_snapshot, "take", counted)
        running.triggers.pull(Reason.NODE)
        await running.until(lambda: now)
        failing = Failing(running.plugin._health.unhealthy, KeyError("a fault of ours"))
        monkeypatch.setattr(running.plugin._health, "unhealthy", failing)

        def has_failed_often() -> bool:
            running.triggers.pull(Reason.HEALTH, Reason.NODE)
            return failing.calls > 60

        await running.until(has_failed_often)
        assert running.log.count("a fault of ours") == 1
        failing.error = None
        gate.set()
        await running.until(lambda: not now)
        assert most == 1

    running.run(scenario)


def test_repeated_failure_is_logged_once_while_mps_is_polled(
    running: RunningPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(node_snapshot.take, None)
    monkeypatch.setattr(node_snapshot, "take", failing)
    monkeypatch.setattr(MpsService, "is_needed", True)

    async def scenario(running: RunningPlugin) -> None:
        await running.until(running.offered)
        failing.error, calls = OSError(28, "No space left on device"), failing.calls
        running.triggers.pull(Reason.NODE)
        await running.until(lambda: failing.calls >= calls + 5)
        assert running.log.count("No space left") == 1

    running.run(scenario)


def test_failed_reconcile_does_not_delay_the_next_snapshot(
    running: RunningPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, outcomes = Failing(node_snapshot.take, None), Failing(reconcile.reconcile, None)
    monkeypatch.setattr(node_snapshot, "take", looks)
    monkeypatch.setattr(reconcile, "reconcile", outcomes)
    monkeypatch.setattr(MpsService, "is_needed", True)

    async def scenario(running: RunningPlugin) -> None:
        await running.until(running.offered)
        outcomes.error, calls = OSError(28, "No space left on device"), looks.calls
        running.triggers.pull(Reason.NODE)
        await running.until(lambda: looks.calls >= calls + 4)

    running.run(scenario)


def test_triggers_during_a_turn_start_one_more_turn(
    running: RunningPlugin, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    calls = 0
    take_snapshot = node_snapshot.take

    def counted(launch: Launch, configuration: Configuration) -> NodeSnapshot:
        nonlocal calls
        calls += 1
        if calls == 2:
            gate.wait()
        return take_snapshot(launch, configuration)

    monkeypatch.setattr(node_snapshot, "take", counted)

    async def scenario(running: RunningPlugin) -> None:
        await running.until(running.offered)
        running.triggers.pull(Reason.NODE)
        await running.until(lambda: calls == 2)
        running.triggers.pull(Reason.NODE, Reason.HEALTH)
        gate.set()
        await running.until(lambda: calls == 3)

    running.run(scenario)


def test_missing_driver_makes_all_gpus_unhealthy_until_it_is_back(
    running: RunningPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_snapshot = node_snapshot.take
    trouble = fault("GH1204", path="libnvidia-ml.so.1", reason="Driver Not Loaded")
    is_gone = False

    def take_changed(launch: Launch, configuration: Configuration) -> NodeSnapshot:
        found = take_snapshot(launch, configuration)
        away = replace(nvidia_part.part(Node(Driver())), error=trouble)
        return NodeSnapshot(parts=(away,)) if is_gone else found

    monkeypatch.setattr(node_snapshot, "take", take_changed)

    async def scenario(running: RunningPlugin) -> None:
        nonlocal is_gone
        await running.until(running.offered)
        is_gone = True
        running.triggers.pull(Reason.NODE)
        await running.until(lambda: running.plugin._answers.known.context.unhealthy)
        assert running.offered() == 1
        is_gone = False
        await running.until(lambda: not running.plugin._answers.known.context.unhealthy)

    running.run(scenario)


def test_answers_use_the_configuration_of_the_offer(
    running: RunningPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configuration that the node refuses changes neither."""
    failing = Failing(reconcile.reconcile, None)
    monkeypatch.setattr(reconcile, "reconcile", failing)

    async def scenario(running: RunningPlugin) -> None:
        await running.until(running.offered)
        failing.error = fault("GH1856", channel=7, path="/dev/none")
        text = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n"
        running.config.write_text(CONFIG + text)
        await running.until(lambda: running.log.count("channel 7"))
        assert running.offered() == 1
        assert running.plugin._answers.known.configuration.sharing.strategy == "none"
        failing.error = None
        await running.until(lambda: running.offered() == 2)
        assert running.plugin._answers.known.configuration.sharing.strategy == "time-slicing"

    running.run(scenario)


def test_empty_offer_is_logged_once_per_change(running: RunningPlugin) -> None:
    """It is logged at the start, and after the last GPU is excluded."""
    nothing = CONFIG.replace("gpuhook: {", "gpuhook: {excludeDevices: [0], ")

    async def scenario(running: RunningPlugin) -> None:
        await running.until(lambda: running.log.count("offers no GPU") == 1)
        running.config.write_text(CONFIG)
        await running.until(running.offered)
        running.config.write_text(nothing)
        await running.until(lambda: running.log.count("offers no GPU") == 2)
        running.triggers.pull(Reason.NODE)
        await running.until(lambda: not running.offered())
        assert running.log.count("offers no GPU") == 2

    running.config.write_text(nothing)
    running.run(scenario)


def test_metrics_port_is_used_when_it_is_free(running: RunningPlugin) -> None:
    """The previous plugin may end after the start of this one."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        running.config.write_text(CONFIG.replace('address: ""', f'address: "127.0.0.1:{port}"'))

        async def scenario(running: RunningPlugin) -> None:
            await running.until(running.offered)
            await running.until(lambda: running.log.count(str(port)))
            other.close()
            running.triggers.pull(Reason.NODE)
            await running.until(
                lambda: ("metrics", {"address": f"127.0.0.1:{port}"}) in running.log.lines
            )

        running.run(scenario)


def test_repeated_invalid_configuration_is_logged_after_a_valid_one(running: RunningPlugin) -> None:
    def unchanged() -> int:
        return running.plugin._counters.snapshot().counters["config_reloads"].get(("unchanged",), 0)

    async def scenario(running: RunningPlugin) -> None:
        await running.until(running.offered)
        await running.until(unchanged)
        running.config.write_text(CONFIG.replace("v1", "v0"))
        await running.until(lambda: running.log.count("has an error") == 1)
        before = unchanged()
        running.config.write_text(CONFIG)
        await running.until(lambda: unchanged() > before)
        running.config.write_text(CONFIG.replace("v1", "v0"))
        await running.until(lambda: running.log.count("has an error") == 2)

    running.run(scenario)


def test_sighup_logs_the_result_of_the_reload(running: RunningPlugin) -> None:
    """A file with the same error is logged once, and again at SIGHUP."""

    async def scenario(running: RunningPlugin) -> None:
        await running.until(running.offered)
        running.config.write_text("sharing: 1\n")
        await running.until(lambda: running.log.count("must be a mapping") == 1)
        running.triggers.pull(Reason.CONFIGURATION)
        running.triggers.pull(Reason.RELOAD, Reason.CONFIGURATION, Reason.NODE)
        await running.until(lambda: running.log.count("must be a mapping") == 2)
        assert running.log.count("SIGHUP") == 1
        running.config.write_text(CONFIG)  # valid again, and unchanged
        await running.until(lambda: running.log.count(", as before") == 1)
        running.triggers.pull(Reason.RELOAD, Reason.CONFIGURATION, Reason.NODE)
        await running.until(lambda: running.log.count(", as before") == 2)
        assert running.log.count("SIGHUP") == 2

    running.run(scenario)


def test_configuration_without_gpus_is_applied_and_logged(running: RunningPlugin) -> None:
    """A configuration that excludes all GPUs is applied, and the empty offer is reported."""
    running.config.write_text(CONFIG.replace("gpuhook: {", "gpuhook: {excludeDevices: [0], "))

    async def scenario(running: RunningPlugin) -> None:
        await running.until(lambda: running.log.count("this node offers no GPU"))
        assert running.log.count(f"configuration {running.config}, ") == 1
        running.config.write_text(CONFIG)
        await running.until(running.offered)
        running.config.write_text(CONFIG.replace("gpuhook: {", "gpuhook: {excludeDevices: [0], "))
        await running.until(lambda: running.log.count("this node offers no GPU") == 2)

    running.run(scenario)


def test_unknown_node_is_not_logged_as_an_empty_offer(
    running: RunningPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(node_snapshot.take, fault("GH1204", path="libnvidia-ml.so.1", reason="gone"))
    monkeypatch.setattr(node_snapshot, "take", failing)

    async def scenario(running: RunningPlugin) -> None:
        await running.until(lambda: failing.calls >= 2)
        failing.error = None
        await running.until(running.offered)

    running.run(scenario)
    assert not running.log.count("this node offers no GPU")


MEMORY = "sharing: {{timeSlicing: {{resources: [{{name: nvidia.com/gpu, replicas: 4, {}}}]}}}}\n"
FAIR, TOO_MUCH = MEMORY.format("memory: fair"), MEMORY.format("memory: 4Gi")


def test_configuration_refused_by_the_node_changes_nothing(running: RunningPlugin) -> None:
    """Guard, metrics and offer keep the previous configuration."""

    def counted(what: str) -> int:
        return running.plugin._counters.snapshot().counters["config_reloads"].get((what,), 0)

    async def scenario(running: RunningPlugin) -> None:
        await running.until(lambda: running.offered() == 4)
        before = running.plugin._counters.snapshot().configuration
        guard = "gpuhook: {guard: {action: terminate}, "
        running.config.write_text(CONFIG.replace("gpuhook: {", guard) + TOO_MUCH)
        await running.until(lambda: running.log.count("4 replicas of 4096 MiB") == 1)
        assert counted("refused") == 1
        assert counted("applied") == 0
        assert running.plugin._counters.snapshot().configuration == before
        assert running.plugin._guard._settings.action == "report"
        assert running.plugin._config.loaded.configuration.own.guard.action == "report"
        (fields,) = [f for line, f in running.log.lines if "4 replicas of 4096" in line]
        assert fields["reason"] == "ConfigRefused"
        assert fields["at"] == f"{running.config}:4:37"
        assert fields["goes_on"] == running.plugin._config.loaded.digest
        assert not [f for _, f in running.log.lines if f.get("reason") == "NotOffered"]
        running.config.write_text(CONFIG + FAIR.replace("4", "2"))
        await running.until(lambda: running.offered() == 2)
        assert counted("applied") == 1

    running.config.write_text(CONFIG + FAIR)
    running.run(scenario)


def test_refused_configuration_is_retried_when_the_node_changes(
    running: RunningPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU with more memory can make it valid."""
    take_snapshot, is_larger = node_snapshot.take, False

    def take_changed(launch: Launch, configuration: Configuration) -> NodeSnapshot:
        found = take_snapshot(launch, configuration)
        own = nvidia_part.own_part(found.parts)
        gpus = tuple(replace(gpu, memory_bytes=80 << 30) for gpu in own.node.gpus)
        larger = replace(own, inventory=replace(own.node, gpus=gpus))
        return replace(found, parts=(larger,)) if is_larger else found

    monkeypatch.setattr(node_snapshot, "take", take_changed)

    async def scenario(running: RunningPlugin) -> None:
        nonlocal is_larger
        await running.until(lambda: running.offered() == 1)
        running.config.write_text(CONFIG + TOO_MUCH)
        await running.until(lambda: running.log.count("4 replicas of 4096 MiB") == 1)
        running.triggers.pull(Reason.NODE)
        await asyncio.sleep(0.1)
        assert running.offered() == 1
        assert running.log.count("4 replicas of 4096 MiB") == 1
        is_larger = True
        running.triggers.pull(Reason.NODE)
        await running.until(lambda: running.offered() == 4)
        assert running.plugin._counters.snapshot().counters["config_reloads"][("refused",)] == 1

    running.run(scenario)


@pytest.mark.parametrize("is_fatal", [True, False])
def test_configuration_refused_at_the_start_is_not_logged_as_applied(
    running: RunningPlugin, is_fatal: bool
) -> None:
    text = CONFIG.replace("false", "true") if is_fatal else CONFIG
    running.config.write_text(text + TOO_MUCH)

    async def scenario(running: RunningPlugin) -> None:
        if is_fatal:
            await asyncio.wait({running.task})
            return
        await running.until(lambda: running.log.count("4 replicas of 4096 MiB"))
        running.config.write_text(CONFIG + FAIR)
        await running.until(lambda: running.offered() == 4)
        assert running.log.count(f"configuration {running.config}, ") == 1

    if is_fatal:
        with pytest.raises(GpuhookError, match=r"timeSlicing\.resources\[0\]: nvidia\.com/gpu: 4"):
            running.run(scenario)
        assert not running.log.count(f"configuration {running.config}, ")
    else:
        running.run(scenario)
    (failure, *_) = [f for line, f in running.log.lines if "4 replicas of 4096" in line]
    assert failure["reason"] == "ConfigRefused"
    assert failure["at"] == f"{running.config}:4:37"
