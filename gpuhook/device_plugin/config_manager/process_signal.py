# SPDX-License-Identifier: Apache-2.0
"""The processes that get a signal when the configuration changes."""

from __future__ import annotations

import os

from gpuhook.host.hot import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config_manager.manager_options import ManagerOptions


def processes(name: str, proc: str = "/proc") -> list[int]:
    """Return the PIDs of processes whose first word is `name`, or a path with that base name."""
    pids = []
    for pid in procfs.pids(proc):
        try:
            with open(f"{proc}/{pid}/cmdline", "rb") as file:
                first = os.fsdecode(file.read(4096).partition(b"\0")[0])
        except OSError:
            continue  # the process has ended
        if name in (first, os.path.basename(first)):
            pids.append(pid)
    return sorted(pids)


def send(options: ManagerOptions) -> list[int]:
    """Send the signal to the processes of that name, and return their PIDs.

    The list may be empty: a process that starts later reads the new configuration.
    """
    pids = []
    for pid in processes(options.process_to_signal):
        if pid == os.getpid():
            continue
        try:
            os.kill(pid, options.signal)
        except ProcessLookupError:
            continue
        pids.append(pid)
    return pids
