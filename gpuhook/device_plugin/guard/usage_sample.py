# SPDX-License-Identifier: Apache-2.0
"""Samples the use of devices: the driver reports pids and bytes, /proc the container of a pid.

It blocks for as long as the driver takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.device_plugin.guard import guard_shares
from gpuhook.device_plugin.guard.container_processes import (
    container_scopes,
    first_processes,
    process_container,
)
from gpuhook.device_plugin.guard.guard_policy import User

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuhook.device_plugin.guard.container_processes import Processes, ProcessScope
    from gpuhook.device_plugin.guard.device_processes import DeviceProcesses
    from gpuhook.device_plugin.guard.guard_shares import GuardShare, Holding, Key, LimitedUnit

_MOST_CACHED = 4096


@dataclass(frozen=True, slots=True)
class SampledUse:
    """The processes on each device, None if not reported, and the shares.

    `strangers` are (container, device) pairs without a share of a shared device.
    """

    users: Mapping[str, tuple[User, ...] | None] = field(default_factory=dict)
    shares: Mapping[Key, GuardShare] = field(default_factory=dict)
    strangers: tuple[Key, ...] = ()
    scopes: Mapping[str, ProcessScope] = field(default_factory=dict)  # by container id
    unidentified: frozenset[str] = frozenset()  # containers without identifiable processes


class UsageSampler:
    """Takes samples, and caches the grants in the mounts of containers, which never change."""

    def __init__(self, kernel: Processes) -> None:
        self._kernel = kernel
        self._grants: dict[str, dict[str, int]] = {}  # by container

    def sample(
        self,
        processes: DeviceProcesses,
        holding: Holding,
        units: Mapping[str, LimitedUnit],
    ) -> SampledUse:
        """Return a sample of the devices in `holding`."""
        users: dict[str, tuple[User, ...] | None] = {}
        first = first_processes(self._kernel, holding.firsts)
        scopes = container_scopes(first)
        with processes.opened():
            for uuid in sorted(holding.devices):
                users[uuid] = self._users(processes.memory(uuid), holding, scopes)
        shares, strangers = self._shares(users, holding, units)
        unidentified = frozenset(
            container
            for container, about in first.items()
            if process_container(about, holding.known, scopes) != container
        )
        return SampledUse(users, shares, strangers, scopes, unidentified)

    def _shares(
        self,
        users: Mapping[str, tuple[User, ...] | None],
        holding: Holding,
        units: Mapping[str, LimitedUnit],
    ) -> tuple[dict[Key, GuardShare], tuple[Key, ...]]:
        """Return the shares, and (container, device) pairs without one."""
        shares, strangers = dict(holding.shares), []
        resources = {unit.device: unit.resource for unit in units.values()}
        pods = {user.container for seen in users.values() for user in seen or () if user.in_pod}
        for uuid, seen in users.items():
            grants, hidden = self._granted(uuid, seen or (), holding)
            others = {one: hard for one, hard in grants.items() if one not in holding.known}
            found = guard_shares.unspecified_shares(uuid, grants, holding.unspecified, hidden)
            found += guard_shares.unrecorded_shares(
                uuid, others, pods, holding.unrecorded, resources.get(uuid, ""), hidden=hidden
            )
            shares.update((share.key, share) for share in found)
            known = shares.keys() | holding.by_driver | holding.unspecified.keys()
            containers = dict.fromkeys(user.container for user in seen or () if user.container)
            strangers += [(one, uuid) for one in containers if (one, uuid) not in known]
        return shares, tuple(strangers)

    def _users(
        self,
        listed: Mapping[int, int | None] | None,
        holding: Holding,
        scopes: Mapping[str, ProcessScope],
    ) -> tuple[User, ...] | None:
        """Return the running ones of the listed processes."""
        if listed is None:
            return None
        users = []
        for pid, memory in listed.items():
            about = self._kernel.about(pid)
            if about is not None:
                container = process_container(about, holding.known, scopes)
                in_pod = container is not None and about.member.in_pod
                users.append(User(pid, about.started, container, memory, in_pod))
        return tuple(users)

    def _granted(
        self, device: str, users: Iterable[User], holding: Holding
    ) -> tuple[dict[str, int | None], set[str]]:
        """Return grants of containers without a limit in the ledger, and containers hiding them."""
        granted: dict[str, int | None] = {}
        hidden: set[str] = set()
        for user in users:
            if user.container is None:
                continue
            if (
                user.container in holding.known
                and (user.container, device) not in holding.unspecified
            ):
                continue
            grants = self._grants.get(user.container) or self._kernel.grants(user.pid)
            if grants:
                self._cache(user.container, dict(grants))
            if grants is None:
                hidden.add(user.container)
            before, now = granted.get(user.container), (grants or {}).get(device)
            granted[user.container] = now if before is None else before
        return granted, {one for one in hidden if one not in self._grants}

    def _cache(self, container: str, grants: dict[str, int]) -> None:
        if len(self._grants) >= _MOST_CACHED:
            self._grants.clear()
        self._grants[container] = grants
