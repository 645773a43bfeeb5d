# SPDX-License-Identifier: Apache-2.0
"""Collects the facts for the metrics when they are scraped.

The kubelet and the drivers are queried in parallel, within a few seconds. A source that does not
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
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from gpuhook.device_plugin.metrics.cgroup_names import Membership
    from gpuhook.device_plugin.metrics.container_memory import HolderEntry
    from gpuhook.device_plugin.offer.offered_devices import Resource
    from gpuhook.vendors.usage.usage_device import UsageDevice

TIMEOUT = 4.0  # seconds; Prometheus itself waits for ten
_MAX_PROCESSES = 4096


@dataclass(frozen=True, slots=True)
class VendorReader:
    """Reads the usage of a vendor's devices, and of others of the vendor; None: no driver can."""

    domain: str
    name: str
    read: Callable[[], Iterable[UsageDevice]] | None


@dataclass(frozen=True, slots=True)
class Offered:
    """The offered resources, and the UUIDs of unhealthy devices.

    `guards`: the plugin ends processes of containers above their memory limit. `readers` read the
    usage of the vendors' devices.
    """

    resources: tuple[Resource, ...] = ()
    unhealthy: frozenset[str] = frozenset()
    guards: bool = False
    readers: tuple[VendorReader, ...] = ()

    def sources(self) -> dict[str, Callable[[], tuple[DeviceUse, ...]] | None]:
        """Return what reads the usage of the devices by source, None without a driver.

        A vendor that offers no device is not a source on a node with another one.
        """
        devices = [device for resource in self.resources for device in resource.devices]
        found: dict[str, Callable[[], tuple[DeviceUse, ...]] | None] = {}
        for reader in self.readers:
            own = frozenset(one.uuid for one in devices if one.domain == reader.domain)
            if own or len(self.readers) == 1:
                found[reader.name] = reader.read and partial(_read, reader.read, own)
        return found


@dataclass(frozen=True, slots=True)
class _DriverFacts:
    """The answer of a driver; `uses` None: it did not answer."""

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
        timeout: float | None = None,
    ) -> None:
        self.offered = offered or Offered()
        self._holders = holders
        self._proc = proc
        self._timeout = TIMEOUT if timeout is None else timeout
        self._measuring: dict[str, asyncio.Future[_DriverFacts]] = {}

    async def pull(self) -> ScrapedFacts:
        offered = self.offered
        sources = offered.sources()
        queries = (self._query_driver(name, read) for name, read in sources.items())
        holdings, measured = await asyncio.gather(self._query_kubelet(), asyncio.gather(*queries))
        uses = tuple(use for one in measured for use in one.uses or ())
        entries = {key: entry for one in measured for key, entry in one.entries.items()}
        containers = container_memory.container_memory(
            uses,
            {pid: member for one in measured for pid, member in one.members.items()},
            entries,
            holdings.holders,
            container_memory.shares(offered.resources, guards=offered.guards),
        )
        answers = {name: one.uses is not None for name, one in zip(sources, measured, strict=True)}
        return ScrapedFacts(
            offered.resources,
            offered.unhealthy,
            holdings,
            uses,
            answers,
            containers,
            tuple(entries.values()),
        )

    async def _query_kubelet(self) -> Holdings:
        try:
            return await asyncio.wait_for(self._holders(), self._timeout)
        except asyncio.TimeoutError:  # another class before Python 3.11
            return Holdings(reason="no answer in time")

    async def _query_driver(
        self, name: str, read: Callable[[], tuple[DeviceUse, ...]] | None
    ) -> _DriverFacts:
        before = self._measuring.get(name)
        if read is None or (before is not None and not before.done()):
            return _DriverFacts()
        self._measuring[name] = daemon_thread.begin(partial(self._measure, read), "gpuhook-usage")
        try:
            return await asyncio.wait_for(asyncio.shield(self._measuring[name]), self._timeout)
        except asyncio.TimeoutError:
            return _DriverFacts()

    def _measure(self, read: Callable[[], tuple[DeviceUse, ...]]) -> _DriverFacts:
        try:
            uses = read()
        except Exception:  # of the driver's files, or a bug
            return _DriverFacts()
        if uses and all(use == DeviceUse(use.uuid) for use in uses):
            return _DriverFacts()  # no answer at all: the driver does not work
        pids = {process.pid for use in uses for process in use.processes or ()}
        chosen = sorted(pids)[:_MAX_PROCESSES]
        members = {pid: cgroup_names.of_pid(pid, self._proc) for pid in chosen}
        return _DriverFacts(uses, members, ledger_entries.read())


def _read(
    read: Callable[[], Iterable[UsageDevice]], devices: Collection[str]
) -> tuple[DeviceUse, ...]:
    """Return the usage of these devices. Processes are unknown if some cannot be read."""
    return tuple(
        DeviceUse(
            one.uuid,
            one.total,
            one.used,
            one.processes if one.is_complete else None,
            one.percent,
        )
        for one in read()
        if one.uuid in devices
    )
