# SPDX-License-Identifier: Apache-2.0
"""A look at who uses the devices: the driver tells pids and bytes, /proc the container of a pid.

It blocks for as long as the driver takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from gpuhook.device_plugin.guard import guard_shares
from gpuhook.device_plugin.guard import process_scope as container_homes
from gpuhook.device_plugin.guard.guard_policy import User
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpuhook.device_plugin.guard.container_processes import About
    from gpuhook.device_plugin.guard.guard_shares import GuardShare, Holding, Key, LimitedUnit
    from gpuhook.device_plugin.guard.process_scope import Home
    from gpuhook.device_plugin.offer.offered_devices import Resource

_MOST_CACHED = 4096


class SampleUse(Protocol):
    """A process on a device, as the driver tells it."""

    @property
    def pid(self) -> int: ...
    @property
    def memory_bytes(self) -> int | None: ...
    @property
    def gpu_instance(self) -> int | None: ...
    @property
    def compute_instance(self) -> int | None: ...


class SampleDriver(Protocol):
    """What is asked. Both may block, and raise GpuhookError."""

    def opened(self) -> AbstractContextManager[object]:
        """Keep the driver's library started, as opening it again and again costs."""

    def processes(self, uuid: str) -> Sequence[SampleUse] | None:
        """Return who uses a GPU or MIG instance, None where that cannot be told."""


class SampleKernel(Protocol):
    """The processes of the host, see container_processes.py."""

    def trouble(self) -> GpuhookError | None: ...
    def hosts(self) -> frozenset[tuple[int, int]] | None: ...
    def about(self, pid: int) -> About | None: ...
    def grants(self, pid: int) -> Mapping[str, int] | None: ...
    def send(self, pid: int, name: str, is_still: Callable[[], bool]) -> bool: ...


@dataclass(frozen=True, slots=True)
class SampleTarget:
    """A device to look at. `gpu` and `instance` are what a MIG instance is of and where in it."""

    uuid: str
    gpu: str
    instance: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class SampledUse:
    """Who uses each device, None where the driver cannot tell; the shares that are known by now.

    `strangers` are (container, device) that hold no share of a device that is shared.
    """

    users: Mapping[str, tuple[User, ...] | None] = field(default_factory=dict)
    shares: Mapping[Key, GuardShare] = field(default_factory=dict)
    strangers: tuple[Key, ...] = ()
    homes: Mapping[str, Home] = field(default_factory=dict)  # of containers, by id
    untold: frozenset[str] = frozenset()  # containers whose processes cannot be told


def targets(resources: Iterable[Resource]) -> dict[str, SampleTarget]:
    """Return the devices of resources, by UUID."""
    devices = (device for resource in resources for device in resource.devices)
    return {one.uuid: SampleTarget(one.uuid, one.gpu, one.instance) for one in devices}


class Looking:
    """Looks, and remembers what the mounts of containers grant: that never changes."""

    def __init__(self, kernel: SampleKernel) -> None:
        self._kernel = kernel
        self._grants: dict[str, dict[str, int]] = {}  # by container

    def look(
        self,
        driver: SampleDriver,
        holding: Holding,
        known_targets: Mapping[str, SampleTarget],
        units: Mapping[str, LimitedUnit],
    ) -> SampledUse:
        """Return what there is to see of the devices that `holding` names."""
        users: dict[str, tuple[User, ...] | None] = {}
        found, strangers = dict(holding.shares), []
        pods: set[str] = set()
        homes = container_homes.container_scopes(self._kernel, holding.firsts)
        resources = {unit.device: unit.resource for unit in units.values()}
        try:
            with driver.opened():
                for uuid in sorted(holding.devices):
                    target = known_targets.get(uuid, SampleTarget(uuid, uuid))
                    listed = memory_by_pid(driver, target)
                    users[uuid] = (
                        None if listed is None else self._users(listed, holding, homes, pods)
                    )
        except GpuhookError:  # it cannot be opened: of the rest, too, nothing can be told
            users.update((uuid, None) for uuid in holding.devices - users.keys())
        for uuid, seen in users.items():
            grants, hidden = self._granted(uuid, seen or (), holding)
            for share in guard_shares.unsaid_shares(uuid, grants, holding.unsaid, hidden):
                found[share.key] = share
            others = {one: hard for one, hard in grants.items() if one not in holding.known}
            resource = resources.get(uuid, "")
            for share in guard_shares.unrecorded_shares(
                uuid, others, pods, holding.unrecorded, resource, hidden=hidden
            ):
                found[share.key] = share
            told = found.keys() | holding.by_driver | holding.unsaid.keys()
            containers = dict.fromkeys(user.container for user in seen or () if user.container)
            strangers += [(one, uuid) for one in containers if (one, uuid) not in told]
        untold = self._untold(holding, homes)
        return SampledUse(users, found, tuple(strangers), homes, untold)

    def _untold(self, holding: Holding, homes: Mapping[str, Home]) -> frozenset[str]:
        """Return the containers whose processes cannot be told: their first one is nobody's."""
        found = set()
        hosts = self._kernel.hosts() or ()
        for container, (pid, started) in holding.firsts.items():
            about = self._kernel.about(pid)
            if about is None or about.started != started:
                continue
            if about.home is None or about.home.mounts in hosts:
                continue  # it may be none of the container
            if container_homes.container(about, holding.known, homes) != container:
                found.add(container)
        return frozenset(found)

    def _users(
        self,
        listed: Mapping[int, int | None],
        holding: Holding,
        homes: Mapping[str, Home],
        pods: set[str],
    ) -> tuple[User, ...]:
        """Return the processes that still are there, and note which containers are of pods."""
        found = []
        for pid, memory in listed.items():
            about = self._kernel.about(pid)
            if about is None:
                continue
            container = container_homes.container(about, holding.known, homes)
            found.append(User(pid, about.started, container, memory))
            if container is not None and about.member.in_pod:
                pods.add(container)
        return tuple(found)

    def _granted(
        self, device: str, users: Iterable[User], holding: Holding
    ) -> tuple[dict[str, int | None], set[str]]:
        """Return what each container of which the ledger says nothing was granted of a device.

        And those of them whose mounts are hidden: what they hold is unknown.
        """
        found: dict[str, int | None] = {}
        hidden: set[str] = set()
        for user in users:
            if user.container is None:
                continue
            if user.container in holding.known and (user.container, device) not in holding.unsaid:
                continue
            grants = self._grants.get(user.container) or self._kernel.grants(user.pid)
            if grants:
                self._keep(user.container, dict(grants))
            if grants is None:
                hidden.add(user.container)
            before, now = found.get(user.container), (grants or {}).get(device)
            found[user.container] = now if before is None else before
        return found, {one for one in hidden if one not in self._grants}

    def _keep(self, container: str, grants: dict[str, int]) -> None:
        if len(self._grants) >= _MOST_CACHED:
            self._grants.clear()
        self._grants[container] = grants


def memory_by_pid(driver: SampleDriver, target: SampleTarget) -> dict[int, int | None] | None:
    """Return the bytes of each process on a device, None where the driver cannot tell.

    One that computes and draws is listed twice, with all of it. A driver that does not list the
    processes of a MIG instance tells of its GPU's in which instance they are. Raises GpuhookError.
    """
    uses = driver.processes(target.uuid)
    is_parents = uses is None and target.instance is not None
    if is_parents:
        uses = driver.processes(target.gpu)
    if uses is None:
        return None
    found: dict[int, int | None] = {}
    for use in uses:
        if not _is_there(use, target, is_parents=is_parents):
            continue
        before, now = found.get(use.pid), use.memory_bytes
        found[use.pid] = now if before is None else max(before, now or 0)
    return found


def _is_there(use: SampleUse, target: SampleTarget, *, is_parents: bool) -> bool:
    if target.instance is None:
        return True
    if use.gpu_instance is None:
        return not is_parents
    if use.gpu_instance != target.instance[0]:
        return False
    return use.compute_instance in (None, target.instance[1])
