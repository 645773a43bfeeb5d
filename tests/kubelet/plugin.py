# SPDX-License-Identifier: Apache-2.0
"""The plugin's sockets in a test: an event loop in a thread, simple answers, recorded events."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gpuhook.device_plugin.allocate.container_allocation import Allocation
from gpuhook.device_plugin.kubelet.kubelet_answers import KubeletAnswers
from gpuhook.device_plugin.kubelet.observer import Observer
from gpuhook.device_plugin.kubelet.plugin_sockets import PluginSockets
from gpuhook.device_plugin.metrics.counters import Counters
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit
from gpuhook.errors import GpuhookError
from tests.waiting import Changes

T = TypeVar("T")


def device(name: str, numa_node: int | None = None) -> Device:
    """Return a device with this UUID."""
    return Device(name, "0", name, 0, ("/dev/nvidia0",), ("/dev/nvidia0",), numa_node=numa_node)


def resource(count: int = 2, replicas: int = 2, name: str = "nvidia.com/gpu") -> Resource:
    """Return a resource of `count` GPUs, GPU-0 and so on, with `replicas` units each."""
    gpus = [device(f"GPU-{index}") for index in range(count)]
    return Resource(
        name, tuple(Unit(f"{gpu.uuid}::{n}", gpu, n) for gpu in gpus for n in range(replicas))
    )


class Answers(KubeletAnswers):
    """Answers that repeat the request; `error` is raised instead, if set."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.hangs: threading.Event | None = None  # PreStartContainer waits for this event
        self.waits = threading.Event()  # PreStartContainer waits

    def allocate(self, resource: Resource, requests: list[list[str]]) -> list[Allocation]:
        self._fail()
        return [Allocation(envs={"GPUS": ",".join(ids)}) for ids in requests]

    def preferred(
        self, resource: Resource, available: list[str], must_include: list[str], size: int
    ) -> list[str]:
        self._fail()
        return [*must_include, *reversed(available)][: max(size, 0)]

    def pre_start(self, resource: Resource, ids: list[str]) -> None:
        if self.hangs is not None:
            self.waits.set()
            self.hangs.wait(20)
        self._fail()

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


class Observed(Observer):
    """An observer that records its events as (name, resource or detail)."""

    def __init__(self) -> None:
        super().__init__(Counters())
        self.changes = Changes()
        self.events: list[tuple[str, object]] = []
        self.errors: list[GpuhookError] = []
        self.reasons: list[str] = []
        self.open = 0

    def count(self, name: str) -> int:
        """Return the number of these events."""
        with self.changes:
            return [event for event, _ in self.events].count(name)

    def wait_for(self, name: str, times: int = 1) -> None:
        """Wait until the event has occurred this number of times."""
        self.changes.wait_for(lambda: self.count(name) >= times, f"{name} x {times}")

    def _record(self, name: str, what: object) -> None:
        with self.changes:
            self.events.append((name, what))

    def serving(self, resource: str, socket: str) -> None:
        self._record("serving", socket)

    def serving_failed(self, resource: str, reason: GpuhookError, retry: float | None) -> None:
        self.errors.append(reason)
        self._record("serving_failed", reason.code)

    def stopped(self, resource: str) -> None:
        self._record("stopped", resource)

    def registered(self, resource: str, seconds: float) -> None:
        self._record("registered", resource)

    def registration_failed(self, resource: str, reason: GpuhookError, retry: float) -> None:
        self.errors.append(reason)
        self._record("registration_failed", reason.code)

    def registration_skipped(self, resource: str) -> None:
        self._record("registration_skipped", resource)

    def kubelet_absent(self, socket: str) -> None:
        self._record("kubelet_absent", socket)

    def unwatched(self, resource: str) -> None:
        self._record("unwatched", resource)

    def watch_failed(self, reason: OSError) -> None:
        self._record("watch_failed", str(reason))

    def list_sent(self, resource: str, devices: int, size: int) -> None:
        self._record("list_sent", devices)

    def streams(self, resource: str, count: int) -> None:
        self.open = count
        self._record("streams", count)

    def allocated(self, resource: str, requests: Sequence[Sequence[str]], seconds: float) -> None:
        self._record("allocated", [list(ids) for ids in requests])

    def preferred(self, resource: str, seconds: float) -> None:
        self._record("preferred", resource)

    def pre_started(self, resource: str, ids: Sequence[str], seconds: float) -> None:
        self._record("pre_started", list(ids))

    def refused(self, resource: str, method: str, reason: str, seconds: float) -> None:
        self.reasons.append(reason)
        self._record("refused", method)

    def broken(self, resource: str, method: str, error: Exception) -> None:
        self._record("broken", repr(error))


class LoopThread:
    """An event loop in a thread; `run` runs a coroutine in it and returns the result."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def tasks(self) -> int:
        """Return the number of tasks, without the one that counts."""

        async def count() -> int:
            return len(asyncio.all_tasks()) - 1

        return self.run(count())

    def close(self) -> None:
        """Cancel the remaining tasks, as asyncio.run does, and end the thread."""

        async def end() -> None:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

        self.run(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)
        self.loop.close()


class Plugin:
    """PluginSockets with simple answers, in a thread; `with` stops it."""

    def __init__(
        self, directory: Path, *, kubelet: str | None = None, pre_start: bool = False
    ) -> None:
        self.answers = Answers()
        self.observed = Observed()
        self.thread = LoopThread()
        socket = str(directory / "kubelet.sock") if kubelet is None else kubelet
        self.serving = PluginSockets(str(directory), socket, self.answers, self.observed, pre_start)
        self._stopped = False

    def __enter__(self) -> Plugin:  # noqa: PYI034  # Self is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.thread.close()

    def offer(self, *resources: Resource, unhealthy: Mapping[str, str] | None = None) -> None:
        self.thread.run(self.serving.offer(resources, unhealthy or {}))

    def require_pre_start(self, wanted: bool) -> None:
        """Call PluginSockets.require_pre_start()."""

        async def required() -> None:
            self.serving.require_pre_start(wanted)

        self.thread.run(required())

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self.thread.run(self.serving.stop())
