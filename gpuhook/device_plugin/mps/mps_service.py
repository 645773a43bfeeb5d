# SPDX-License-Identifier: Apache-2.0
"""Keeps the MPS control daemons of all resources running."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from gpuhook.device_plugin.mps import mps_plan as mps
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.driver import driver_locations
from gpuhook.vendors.nvidia.gpu import compute_mode
from gpuhook.vendors.nvidia.plugin import nvidia_part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuhook.device_plugin.allocate.container_allocation import Allocation
    from gpuhook.device_plugin.mps.mps_daemon import MpsDaemon
    from gpuhook.device_plugin.mps.mps_plan import MpsPlan
    from gpuhook.device_plugin.node_snapshot import NodeSnapshot
    from gpuhook.device_plugin.offer.offered_devices import Resource
    from gpuhook.vendors.nvidia.plugin.nvidia_part import NvidiaPart


@dataclass(slots=True)
class MpsState:
    """The allocation for each resource whose daemon answers, and the reasons of other resources.

    `unready` has reasons by device UUID, `faults` their errors. `started` are the resources with a
    new daemon, `changed` those whose running daemon got other limits: MPS servers that it started
    before keep the old ones.
    """

    given: dict[str, Allocation] = field(default_factory=dict)
    unready: dict[str, str] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    faults: list[GpuhookError] = field(default_factory=list)


class MpsService:
    """Keeps one daemon for each resource shared by MPS. Its methods block."""

    def __init__(self) -> None:
        self._daemons: dict[str, MpsDaemon] = {}
        self._root = ""  # the --mps-root that was searched for orphans
        self._library: tuple[str, str | None] | None = None  # of the driver that the daemons use

    @property
    def is_needed(self) -> bool:
        """Whether any daemon must run."""
        return bool(self._daemons)

    def update(
        self, resources: Iterable[Resource], mps_root: str, snapshot: NodeSnapshot
    ) -> MpsState:
        """Run exactly the daemons that the resources need; faults are in the state.

        Unneeded daemons are stopped first, since a GPU belongs to one daemon. For an inventory file
        no daemon is started or stopped: those on this machine belong to another node.
        """
        state = MpsState()
        own = nvidia_part.own_part(snapshot.parts)
        self._replace_library(own)
        offered = [resource for resource in resources if resource.domain == own.domain]
        plans = self._plans(offered, mps_root, state)
        if snapshot.is_dump:
            state.given.update((name, plan.allocation) for name, plan in plans.items())
            return state
        self._stop_unneeded(plans, mps_root, own)
        for name, plan in plans.items():
            daemon = before = self._daemons.get(name)
            if daemon is None or daemon.plan != plan:
                daemon = self._daemons[name] = _daemon(plan, own)
            try:
                if daemon.ensure():
                    state.started.append(name)
                elif before is not None and before.plan != plan:
                    state.changed.append(name)
                state.given[name] = plan.allocation
            except GpuhookError as error:
                state.unready.update(dict.fromkeys(plan.uuids, error.message))
                state.faults.append(error)
        return state

    def _replace_library(self, own: NvidiaPart) -> None:
        """Use the library of the current driver after a replacement."""
        if own.library_and_module != self._library:
            self._library = own.library_and_module
            known = self._daemons.items()
            self._daemons = {name: _daemon(daemon.plan, own) for name, daemon in known}

    def _plans(
        self, resources: Iterable[Resource], mps_root: str, state: MpsState
    ) -> dict[str, MpsPlan]:
        """Return the needed daemons; devices without one are added to the state."""
        plans = {}
        for resource in resources:
            try:
                plan = mps.plan(resource, mps_root)
            except GpuhookError as error:
                state.unready.update((device.uuid, error.message) for device in resource.devices)
                state.faults.append(error)
                known = self._daemons.get(resource.name)
                plan = known.plan if known is not None else None  # keep it for its running clients
            if plan is not None:
                plans[resource.name] = plan
        return plans

    def _stop_unneeded(self, plans: Mapping[str, MpsPlan], mps_root: str, own: NvidiaPart) -> None:
        """Stop the daemons that are no longer needed, also those of an earlier plugin."""
        if mps_root != self._root:
            self._root = mps_root
            for orphan in mps.orphan_daemons(mps_root):
                if not any(orphan.is_daemon_of(plan) for plan in plans.values()):
                    _quit(_daemon(orphan, own))
        for name, daemon in list(self._daemons.items()):
            if name not in plans or not daemon.plan.is_daemon_of(plans[name]):
                _quit(self._daemons.pop(name))


def _daemon(plan: MpsPlan, own: NvidiaPart) -> MpsDaemon:
    from gpuhook.device_plugin.mps.mps_daemon import PROGRAM, MpsDaemon  # used on few nodes

    program = driver_locations.program_path(own.seen, PROGRAM)
    set_mode = partial(compute_mode.set_compute_mode, own.library_and_module)
    return MpsDaemon(plan, program, set_mode)


def _quit(daemon: MpsDaemon) -> None:
    try:
        daemon.quit()
    except (GpuhookError, OSError):
        return  # it has exited, or ends with its GPU
