# SPDX-License-Identifier: Apache-2.0
"""Reload or restart an engine: by systemd, or by SIGHUP if that is enough.

A daemon is never stopped by a signal: possibly nothing starts it again.
"""

from __future__ import annotations

import os
import select
import signal
import time
from dataclasses import dataclass
from typing import Literal

from gpuhook.engines.configure.host_programs import last_words
from gpuhook.engines.state import host_processes
from gpuhook.errors import fault
from gpuhook.host.hot import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.engine_plan import Service
    from gpuhook.engines.configure.host_programs import HostPrograms, Ran

# auto: systemd if a unit of the engine is active, else SIGHUP if that is enough.
How = Literal["none", "auto", "systemd", "signal"]
HOWS: tuple[How, ...] = ("none", "auto", "systemd", "signal")
_START_TIME = 30.0  # seconds in which a unit must become active
_CHANGING = ("activating", "deactivating", "reloading")  # another program restarts it
_CANCELED = "canceled"  # in systemctl's words of a job that a later job has replaced
_SETTLED = 1.0  # seconds that a daemon must run after SIGHUP


@dataclass(frozen=True, slots=True)
class Way:
    """How an engine is restarted: by its unit, or its process; neither if it does not run."""

    unit: str = ""
    pid: int = 0
    reloads: bool = False
    is_of_user: bool = False

    @property
    def text(self) -> str:
        """The action in words, "" for none."""
        if self.unit:
            return f"{'reloaded' if self.reloads else 'restarted'} {self.unit}"
        return f"sent SIGHUP to process {self.pid}" if self.pid else ""


def chosen(
    programs: HostPrograms, engine: str, service: Service, how: How, *, is_of_user: bool = False
) -> Way | None:
    """Return how to restart an engine, None if it needs no restart. Raises GH2007."""
    if how == "none" or not (service.units or service.processes):
        return None
    if how in ("auto", "systemd"):
        for unit in service.units:
            if _settled_state(programs, unit, is_of_user=is_of_user) == "active":
                return Way(unit=unit, reloads=service.reloads, is_of_user=is_of_user)
    pids = processes(programs.root, service.processes)
    if not pids:
        return Way()
    reason = ""
    if how == "systemd":
        reason = "it runs, but not as a known active unit of systemd"
    elif not service.reloads:
        reason = "it reads its configuration only when it starts"
    elif len(pids) > 1:
        reason = f"several run: processes {', '.join(map(str, pids))}"
    if reason:
        how = "systemd" if how == "systemd" else "signal"
        raise fault("GH2007", engine=engine, how=how, reason=reason)
    return Way(pid=pids[0], reloads=True)


def carry_out(programs: HostPrograms, engine: str, way: Way) -> None:
    """Restart the engine, and wait until it runs. Raises GH2006."""
    if way.unit:
        verb = "reload-or-restart" if way.reloads else "restart"
        ran = _systemctl(programs, verb, way.unit, is_of_user=way.is_of_user)
        said = last_words(ran) if ran else "systemctl does not exist"
        if ran is None or (ran.status and _CANCELED not in said):
            raise fault("GH2006", engine=engine, unit=way.unit, said=said)
        _wait(programs, engine, way)
    elif way.pid:
        _signal(engine, way.pid)


def processes(root: str, names: tuple[str, ...]) -> list[int]:
    """Return the processes on the host at `root` whose programs have these names.

    Processes of containers, which have another root directory, and children of such processes are
    skipped.
    """
    pids = [one.pid for one in host_processes.running(root) if one.program in names]
    return sorted(pid for pid in pids if procfs.parent(pid) not in pids)


def _systemctl(programs: HostPrograms, *words: str, is_of_user: bool) -> Ran | None:
    return programs.run(("systemctl", *(("--user",) if is_of_user else ()), *words))


def _state(programs: HostPrograms, unit: str, *, is_of_user: bool) -> str:
    ran = _systemctl(programs, "is-active", unit, is_of_user=is_of_user)
    return ran.output.strip() if ran else ""


def _settled_state(programs: HostPrograms, unit: str, *, is_of_user: bool) -> str:
    """Return the state of a unit, after the restart by another program that is under way."""
    end = time.monotonic() + _START_TIME
    while True:
        state = _state(programs, unit, is_of_user=is_of_user)
        if state not in _CHANGING or time.monotonic() > end:
            return state
        time.sleep(0.2)


def _wait(programs: HostPrograms, engine: str, way: Way) -> None:
    """Wait until the unit is active. Raises GH2006 if it fails, or takes too long."""
    end = time.monotonic() + _START_TIME
    while True:
        state = _state(programs, way.unit, is_of_user=way.is_of_user)
        if state == "active":
            return
        if state == "failed" or time.monotonic() > end:
            raise fault("GH2006", engine=engine, unit=way.unit, said=f"its unit is {state}")
        time.sleep(0.2)


def _signal(engine: str, pid: int) -> None:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return  # it ended, and reads the files when it starts
    try:
        signal.pidfd_send_signal(fd, signal.SIGHUP)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if poll.poll(_SETTLED * 1000):
            reason = "it ended at SIGHUP"
            raise fault("GH2006", engine=engine, unit=f"process {pid}", said=reason)
    except ProcessLookupError:
        return
    finally:
        os.close(fd)
