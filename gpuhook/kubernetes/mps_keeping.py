# SPDX-License-Identifier: Apache-2.0
"""The MPS control daemons of all resources, started and kept running."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field

from gpuhook.errors import GpuhookError
from gpuhook.kubernetes import mps
from gpuhook.kubernetes.allocation import Allocation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.kubernetes.devices import Resource
    from gpuhook.kubernetes.mps_daemon import MpsDaemon
    from gpuhook.kubernetes.node_look import Look


@dataclass(frozen=True, slots=True)
class MpsState:
    """What containers get of each resource whose daemon answers, and why others have none.

    `unready` has reasons by device UUID; `started` are the resources whose daemon is new.
    """

    given: dict[str, Allocation] = field(default_factory=dict)
    unready: dict[str, str] = field(default_factory=dict)
    started: tuple[str, ...] = ()


class MpsKeeping:
    """Keeps one daemon for each resource that is shared by MPS. Its methods block."""

    def __init__(self) -> None:
        self._daemons: dict[str, MpsDaemon] = {}

    @property
    def is_needed(self) -> bool:
        """Whether there is a daemon to look after."""
        return bool(self._daemons)

    def keep(self, resources: Iterable[Resource], mps_root: str, look: Look) -> MpsState:
        """Have a daemon for each resource that needs one, and no others; never raises for one."""
        state, started = MpsState(), []
        kept: dict[str, MpsDaemon] = {}
        for resource in resources:
            try:
                plan = mps.plan(resource, mps_root)
                if plan is None:
                    continue
                kept[resource.name] = daemon = self._daemon(plan, look)
                if daemon.ensure():
                    started.append(resource.name)
                state.given[resource.name] = Allocation(plan.envs, plan.mounts)
            except (GpuhookError, OSError) as error:
                reason = error.message if isinstance(error, GpuhookError) else str(error)
                state.unready.update((device.uuid, reason) for device in resource.devices)
        for name, daemon in self._daemons.items():
            if name not in kept:
                self._quit(daemon)
        self._daemons = kept
        return MpsState(state.given, state.unready, tuple(started))

    def _daemon(self, plan: mps.MpsPlan, look: Look) -> MpsDaemon:
        from gpuhook.kubernetes.mps_daemon import MpsDaemon  # of few nodes
        from gpuhook.vendors.nvidia.compute_mode import set_compute_mode

        known = self._daemons.get(plan.resource)
        if known is not None and known.plan == plan:
            return known
        if known is not None and known.plan.uuids != plan.uuids:
            self._quit(known)  # it holds GPUs that are another's now, or lacks some
        library = (str(look.seen.driver.nvml), look.seen.driver.module_version)
        return MpsDaemon(
            plan, _program(look), lambda uuid, mode: set_compute_mode(library, uuid, mode)
        )

    def _quit(self, daemon: MpsDaemon) -> None:
        try:
            daemon.quit()
        except (GpuhookError, OSError):
            return  # it is gone, or will be with its GPU


def _program(look: Look) -> str:
    """Return the daemon's program: the driver's own, else the one on the search path."""
    from gpuhook.kubernetes.mps_daemon import PROGRAM

    for file in look.seen.files:
        if os.path.basename(file.container_path) == PROGRAM:
            return file.host_path
    return shutil.which(PROGRAM) or PROGRAM
