# SPDX-License-Identifier: Apache-2.0
"""What metrics tell, pulled together when somebody asks, and only then.

The kubelet and the driver are asked at the same time and have a few seconds. Who does not answer
is left out, and a driver that hangs is not asked again before it has answered.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from gpuhook.device_plugin import daemon_thread
from gpuhook.device_plugin.metrics import cgroup_names, container_memory, ledger_entries
from gpuhook.device_plugin.metrics.container_memory import DeviceUse
from gpuhook.device_plugin.metrics.exposition import Pulled
from gpuhook.device_plugin.metrics.unit_holders import Holdings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from gpuhook.device_plugin.metrics.cgroup_names import Membership
    from gpuhook.device_plugin.metrics.container_memory import HolderEntry, ProcessUse
    from gpuhook.device_plugin.offer.offered_devices import Resource

TIMEOUT = 4.0  # seconds; Prometheus itself waits for ten
_MAX_PROCESSES = 4096


@dataclass(frozen=True, slots=True)
class Offered:
    """What the kubelet is told: the resources, and the ids of the units that are unhealthy.

    `guards`: the plugin ends processes of containers that are above a limit of memory.
    """

    resources: tuple[Resource, ...] = ()
    unhealthy: frozenset[str] = frozenset()
    guards: bool = False


class ScrapedMemory(Protocol):
    """The memory of a GPU or MIG instance, in bytes."""

    @property
    def total(self) -> int:
        """Return all of it."""

    @property
    def used(self) -> int:
        """Return what is in use."""


class ScrapedUsage(Protocol):
    """What the driver is asked for, by the UUID of a GPU or MIG instance. It may block."""

    def memory(self, uuid: str) -> ScrapedMemory | None:
        """Return its memory, None where that cannot be told; what it raises means None."""

    def processes(self, uuid: str) -> Sequence[ProcessUse] | None:
        """Return who uses it, None where that cannot be told; what it raises means None."""


@dataclass(frozen=True, slots=True)
class _Measured:
    uses: tuple[DeviceUse, ...] | None = None
    members: dict[int, Membership] = field(default_factory=dict)
    entries: dict[str, HolderEntry] = field(default_factory=dict)


class Scrape:
    """Pulls what metrics tell. `usage` returns what asks the driver now, None without one."""

    def __init__(
        self,
        offered: Callable[[], Offered],
        usage: Callable[[], ScrapedUsage | None],
        holders: Callable[[], Awaitable[Holdings]],
        *,
        proc: str = "/proc",
        timeout: float = TIMEOUT,
    ) -> None:
        self._offered = offered
        self._usage = usage
        self._holders = holders
        self._proc = proc
        self._timeout = timeout
        self._measuring: asyncio.Future[_Measured] | None = None

    async def pull(self) -> Pulled:
        """Return what is true now, within the timeout."""
        offered = self._offered()
        devices = dict.fromkeys(d.uuid for r in offered.resources for d in r.devices)
        holdings, measured = await asyncio.gather(self._held(), self._measured(tuple(devices)))
        containers = container_memory.container_memory(
            measured.uses or (),
            measured.members,
            measured.entries,
            holdings.holders,
            container_memory.shares(offered.resources, guards=offered.guards),
        )
        return Pulled(offered.resources, offered.unhealthy, holdings, measured.uses, containers)

    async def _held(self) -> Holdings:
        try:
            return await asyncio.wait_for(self._holders(), self._timeout)
        except asyncio.TimeoutError:  # another class before Python 3.11
            return Holdings(reason="no answer in time")

    async def _measured(self, devices: tuple[str, ...]) -> _Measured:
        usage = self._usage()
        if usage is None:
            return _Measured()
        if self._measuring is not None and not self._measuring.done():
            return _Measured()
        measuring = daemon_thread.begin(lambda: self._measure(usage, devices), "gpuhook-usage")
        measuring.add_done_callback(_forgotten)
        self._measuring = measuring
        try:
            return await asyncio.wait_for(asyncio.shield(measuring), self._timeout)
        except asyncio.TimeoutError:
            return _Measured()

    def _measure(self, usage: ScrapedUsage, devices: Iterable[str]) -> _Measured:
        uses = tuple(_use(usage, uuid) for uuid in devices)
        if uses and all(use == DeviceUse(use.uuid) for use in uses):
            return _Measured()  # it answers nothing at all: not a driver that works
        pids = {process.pid for use in uses for process in use.processes or ()}
        chosen = sorted(pids)[:_MAX_PROCESSES]
        members = {pid: cgroup_names.of_pid(pid, self._proc) for pid in chosen}
        return _Measured(uses, members, ledger_entries.read())


def _use(usage: ScrapedUsage, uuid: str) -> DeviceUse:
    """Return what one device tells; what it cannot tell does not keep the others from telling."""
    memory, processes = None, None
    try:
        memory = usage.memory(uuid)
        processes = usage.processes(uuid)
    except Exception:  # of the driver, its binding or ours: the others go on telling
        processes = None
    total, used = (memory.total, memory.used) if memory is not None else (None, None)
    return DeviceUse(uuid, total, used, processes)


def _forgotten(measuring: asyncio.Future[_Measured]) -> None:
    """Take note of how a late answer ended, so that nobody warns of an error not looked at."""
    if not measuring.cancelled():
        measuring.exception()
