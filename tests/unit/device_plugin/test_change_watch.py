# SPDX-License-Identifier: Apache-2.0
"""ChangeWatch: the intervals of retries."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from gpuhook.device_plugin import plugin
from gpuhook.device_plugin.api_server.api_clients import ApiClients
from gpuhook.device_plugin.change_watch import ChangeWatch
from gpuhook.device_plugin.config import config_source
from gpuhook.device_plugin.config.launch_options import Launch
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.device_plugin.notifier import Notifier
from gpuhook.device_plugin.triggers import Reason, Triggers
from gpuhook.errors import fault
from gpuhook.host.logs import logger
from gpuhook.vendors.amd.amd_vendor import AmdVendor
from gpuhook.vendors.nvidia.inventory.inventory import Driver, Gpu, Node
from gpuhook.vendors.nvidia.plugin import nvidia_part

SOON = "gpuhook: {health: {pollInterval: 100ms}}\n"


def missing(root: Path) -> NodeSnapshot:
    """Return a snapshot of a node whose driver does not answer."""
    reason = fault("GH1204", path="libnvidia-ml.so.1", reason="none")
    token = nvidia_part.token(str(root))
    part = replace(nvidia_part.part(Node(Driver()), token=token), error=reason, is_whole=False)
    return NodeSnapshot(parts=(part,), tokens={"nvidia.com": token})


def retry_times(
    watch: ChangeWatch, triggers: Triggers, trouble: NodeSnapshot, times: int
) -> list[float]:
    """Return the times, by a fake clock, of the first `times` triggered turns."""

    async def collected() -> list[float]:
        clock, now = asyncio.get_running_loop(), 0.0
        found: list[float] = []
        timers: list[tuple[float, object]] = []

        def call_later(delay: float, call: object) -> asyncio.TimerHandle:
            timers.append((now + delay, call))
            return asyncio.TimerHandle(0, lambda: None, (), clock)

        clock.call_later = call_later  # type: ignore[assignment,method-assign]
        watch.start(lambda: None)
        watch.set_snapshot(trouble)
        watch.schedule_retry()
        while len(found) < times:
            now, call = timers.pop(0)
            assert callable(call)
            call()
            if triggers._pulled == {Reason.NODE}:
                triggers._pulled.clear()
                watch.set_snapshot(trouble)
                watch.schedule_retry()
                found.append(round(now, 3))
        watch.stop()
        return found

    return asyncio.run(collected())


@pytest.mark.parametrize("is_lost", [False, True])
def test_retry_interval_doubles_up_to_a_minute(tmp_path: Path, is_lost: bool) -> None:
    """The driver does not answer, or a GPU is lost."""
    launch = Launch(host_root=str(tmp_path))
    triggers = Triggers()
    gpus = (Gpu(0, uuid="GPU-0"), Gpu(1, uuid="GPU-1", lost="fallen off the bus"))
    part = nvidia_part.part(Node(Driver(), gpus))
    lost = NodeSnapshot(parts=(part,), tokens={"nvidia.com": nvidia_part.token(str(tmp_path))})
    trouble = lost if is_lost else missing(tmp_path)
    times = retry_times(ChangeWatch(launch, triggers, 10.0), triggers, trouble, 5)
    assert times == [10, 30, 70, 130, 190]


def test_first_retry_uses_the_poll_interval(tmp_path: Path) -> None:
    """The driver is missing at the start."""
    config = tmp_path / "config.yaml"
    config.write_text(SOON, encoding="utf-8")
    source = config_source.ConfigSource(file=str(config))
    launch = Launch(source=source, host_root=str(tmp_path))
    triggers = Triggers()
    trouble = missing(tmp_path)
    log = logger()
    made = plugin.Plugin(
        launch, config_source.load(source), ApiClients(launch, log), triggers, Notifier(log)
    )
    assert retry_times(made._watch, triggers, trouble, 2) == [0.1, 0.3]


def test_driver_that_blocks_its_readers_delays_no_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its token is read in a thread, by one reader at a time; a change is seen once it answers."""
    answer, readers, polls = Event(), [], []

    def blocked(*arguments: object) -> str:
        readers.append(arguments)
        answer.wait()
        return "generation=2"

    monkeypatch.setattr(AmdVendor, "plugin_token", blocked)
    triggers = Triggers()
    watch = ChangeWatch(Launch(host_root=str(tmp_path)), triggers, 0.001)
    watch.set_snapshot(NodeSnapshot(tokens={"nvidia.com": nvidia_part.token(str(tmp_path))}))

    async def polled() -> None:
        enough = asyncio.Event()

        def on_poll() -> None:
            polls.append(len(readers))
            if len(polls) == 5:
                enough.set()

        watch.start(on_poll)
        await enough.wait()
        assert len(readers) == 1
        assert not triggers._pulled
        answer.set()
        while Reason.NODE not in triggers._pulled:
            await asyncio.sleep(0)
        watch.stop()

    asyncio.run(polled())
