# SPDX-License-Identifier: Apache-2.0
"""Collects the facts for the metrics when they are scraped.

The kubelet and the driver are queried in parallel, within a few seconds. A source that does not
answer is skipped, and a driver that hangs is not queried again before it has answered.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

from gpuhook.device_plugin import daemon_thread
from gpuhook.device_plugin.metrics import cgroup_names, container_memory, ledger_entries
from gpuhook.device_plugin.metrics.container_memory import DeviceUse
from gpuhook.device_plugin.metrics.exposition import ScrapedFacts
from gpuhook.device_plugin.metrics.unit_holders import Holdings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from gpuhook.device_plugin.driver_memory import DriverUsage
    from gpuhook.device_plugin.metrics.cgroup_names import Membership
    from gpuhook.device_plugin.metrics.container_memory import HolderEntry
    from gpuhook.device_plugin.offer.offered_devices import Resource

TIMEOUT = 4.0  # seconds; Prometheus itself waits for ten
_MAX_PROCESSES = 4096


@dataclass(frozen=True, slots=True)
class Offered:
    """The offered resources, and the UUIDs of unhealthy devices.

    `guards`: the plugin ends processes of containers above their memory limit. `usage` has the
    queries of the current driver, None without one.
    """

    resources: tuple[Resource, ...] = ()
    unhealthy: frozenset[str] = frozenset()
    guards: bool = False
    usage: DriverUsage | None = None


@dataclass(frozen=True, slots=True)
class _DriverFacts:
    uses: tuple[DeviceUse, ...] | None = None
    members: dict[int, Membership] = field(default_factory=dict)
    entries: dict[str, HolderEntry] = field(default_factory=dict)


class Scrape:
    """Collects facts about `offered`; `holders` queries the kubelet."""

    def __init__(
        self,
        holders: Callable[[], Awaitable[Holdings]],
        *,
        offered: Offered | None = None,
        proc: str = "/proc",
        timeout: float = TIMEOUT,
    ) -> None:
        self.offered = offered or Offered()
        self._holders = holders
        self._proc = proc
        self._timeout = timeout
        self._measuring: asyncio.Future[_DriverFacts] | None = None

    async def pull(self) -> ScrapedFacts:
        offered = self.offered
        devices = dict.fromkeys(d.uuid for r in offered.resources for d in r.devices)
        holdings, measured = await asyncio.gather(
            self._query_kubelet(), self._query_driver(offered.usage, tuple(devices))
        )
        containers = container_memory.container_memory(
            measured.uses or (),
            measured.members,
            measured.entries,
            holdings.holders,
            container_memory.shares(offered.resources, guards=offered.guards),
        )
        return ScrapedFacts(
            offered.resources, offered.unhealthy, holdings, measured.uses, containers
        )

    async def _query_kubelet(self) -> Holdings:
        try:
            return await asyncio.wait_for(self._holders(), self._timeout)
        except asyncio.TimeoutError:  # another class before Python 3.11
            return Holdings(reason="no answer in time")

    async def _query_driver(
        self, usage: DriverUsage | None, devices: tuple[str, ...]
    ) -> _DriverFacts:
        is_busy = self._measuring is not None and not self._measuring.done()
        if usage is None or is_busy:
            return _DriverFacts()
        measure = partial(self._measure, usage, devices)
        self._measuring = daemon_thread.begin(measure, "gpuhook-usage")
        try:
            return await asyncio.wait_for(asyncio.shield(self._measuring), self._timeout)
        except asyncio.TimeoutError:
            return _DriverFacts()

    def _measure(self, usage: DriverUsage, devices: Iterable[str]) -> _DriverFacts:
        uses = tuple(_use(usage, uuid) for uuid in devices)
        if uses and all(use == DeviceUse(use.uuid) for use in uses):
            return _DriverFacts()  # no answer at all: the driver does not work
        pids = {process.pid for use in uses for process in use.processes or ()}
        chosen = sorted(pids)[:_MAX_PROCESSES]
        members = {pid: cgroup_names.of_pid(pid, self._proc) for pid in chosen}
        return _DriverFacts(uses, members, ledger_entries.read())


def _use(usage: DriverUsage, uuid: str) -> DeviceUse:
    """Return the report on one device; its error must not affect the other devices."""
    memory, processes = None, None
    try:
        memory = usage.memory(uuid)
        processes = usage.processes(uuid)
    except Exception:  # of the driver, its binding, or a bug
        processes = None
    total, used = (memory.total, memory.used) if memory is not None else (None, None)
    return DeviceUse(uuid, total, used, processes)
