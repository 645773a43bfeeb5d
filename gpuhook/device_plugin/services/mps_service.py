# SPDX-License-Identifier: Apache-2.0
"""The MPS control daemons of all resources, started and kept running."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.device_plugin.allocate.container_allocation import Allocation
from gpuhook.device_plugin.mps import mps_plan as mps
from gpuhook.device_plugin.mps import orphan_daemons
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.driver import driver_locations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuhook.device_plugin.mps.mps_daemon import MpsDaemon
    from gpuhook.device_plugin.mps.mps_plan import MpsPlan
    from gpuhook.device_plugin.node_snapshot import Look
    from gpuhook.device_plugin.offer.offered_devices import Resource


@dataclass(frozen=True, slots=True)
class MpsState:
    """What containers get of each resource whose daemon answers, and why others have none.

    `unready` has reasons by device UUID, `faults` what they came of; `started` are the resources
    whose daemon is new, `changed` those whose daemon has other limits now and ran before: a server
    that it had started keeps its own.
    """

    given: dict[str, Allocation] = field(default_factory=dict)
    unready: dict[str, str] = field(default_factory=dict)
    started: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    faults: tuple[GpuhookError, ...] = ()


class MpsKeeping:
    """Keeps one daemon for each resource that is shared by MPS. Its methods block."""

    def __init__(self) -> None:
        self._daemons: dict[str, MpsDaemon] = {}
        self._root = ""  # where daemons of an earlier plugin were looked for
        self._library: tuple[str, str | None] | None = None  # that the daemons were made for

    @property
    def is_needed(self) -> bool:
        """Whether there is a daemon to look after."""
        return bool(self._daemons)

    def keep(self, resources: Iterable[Resource], mps_root: str, look: Look) -> MpsState:
        """Have a daemon for each resource that needs one, and no others; never raises for one.

        Those that are to go go first: a GPU belongs to one daemon. For a dump nothing is started
        or stopped: what runs here is not of that node.
        """
        state, started, changed = MpsState(), [], []
        faults: list[GpuhookError] = []
        self._renew(look)
        plans = self._plans(resources, mps_root, state.unready, faults)
        if look.is_dump:
            state.given.update((n, Allocation(p.envs, p.mounts)) for n, p in plans.items())
            return state
        self._leave(plans, mps_root, look)
        for name, plan in plans.items():
            known = before = self._daemons.get(name)
            if known is None or known.plan != plan:
                known = self._daemons[name] = _daemon(plan, look)
            try:
                if known.ensure():
                    started.append(name)
                elif before is not None and before.plan != plan:
                    changed.append(name)
                state.given[name] = Allocation(plan.envs, plan.mounts)
            except GpuhookError as error:
                state.unready.update(dict.fromkeys(plan.uuids, error.message))
                faults.append(error)
        return MpsState(state.given, state.unready, tuple(started), tuple(changed), tuple(faults))

    def _renew(self, look: Look) -> None:
        """Ask the driver that there is now: the library of one that was replaced has gone."""
        if look.library != self._library:
            self._library = look.library
            known = self._daemons.items()
            self._daemons = {name: _daemon(daemon.plan, look) for name, daemon in known}

    def _plans(
        self,
        resources: Iterable[Resource],
        mps_root: str,
        unready: dict[str, str],
        faults: list[GpuhookError],
    ) -> dict[str, MpsPlan]:
        """Return the daemons that are wanted; add the devices that cannot have one, and why."""
        plans = {}
        for resource in resources:
            try:
                plan = mps.plan(resource, mps_root)
            except GpuhookError as error:
                unready.update((device.uuid, error.message) for device in resource.devices)
                faults.append(error)
                known = self._daemons.get(resource.name)
                plan = known.plan if known is not None else None  # for the clients that it has
            if plan is not None:
                plans[resource.name] = plan
        return plans

    def _leave(self, plans: Mapping[str, MpsPlan], mps_root: str, look: Look) -> None:
        """Stop the daemons that are no longer wanted, those of an earlier plugin too."""
        if mps_root != self._root:
            self._root = mps_root
            for left in orphan_daemons.orphan_daemons(mps_root):
                if not any(left.is_daemon_of(plan) for plan in plans.values()):
                    _quit(_daemon(left, look))
        for name, daemon in list(self._daemons.items()):
            if name not in plans or not daemon.plan.is_daemon_of(plans[name]):
                _quit(self._daemons.pop(name))


def _daemon(plan: MpsPlan, look: Look) -> MpsDaemon:
    from gpuhook.device_plugin.mps.mps_daemon import MpsDaemon  # of few nodes
    from gpuhook.vendors.nvidia.gpu.compute_mode import set_compute_mode

    library = look.library
    return MpsDaemon(plan, _program(look), lambda uuid, mode: set_compute_mode(library, uuid, mode))


def _quit(daemon: MpsDaemon) -> None:
    try:
        daemon.quit()
    except (GpuhookError, OSError):
        return  # it is gone, or will be with its GPU


def _program(look: Look) -> str:
    from gpuhook.device_plugin.mps.mps_daemon import PROGRAM

    return driver_locations.program_path(look.seen, PROGRAM)
