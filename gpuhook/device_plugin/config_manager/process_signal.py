# SPDX-License-Identifier: Apache-2.0
"""The processes that are told of another configuration."""

from __future__ import annotations

import os

from gpuhook.host.hot import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config_manager.manager_options import ManagerOptions


def processes(name: str, proc: str = "/proc") -> list[int]:
    """Return the pids of the processes whose first word is `name`, or a path that ends in it."""
    found = []
    for pid in procfs.pids(proc):
        try:
            with open(f"{proc}/{pid}/cmdline", "rb") as file:
                first = os.fsdecode(file.read(4096).partition(b"\0")[0])
        except OSError:
            continue  # it has ended
        if name in (first, os.path.basename(first)):
            found.append(pid)
    return sorted(found)


def tell(options: ManagerOptions) -> list[int]:
    """Send the signal to the processes that are meant, and return their pids.

    There may be none: one that starts later reads the configuration that is there by then.
    """
    told = []
    for pid in processes(options.process_to_signal):
        if pid == os.getpid():
            continue
        try:
            os.kill(pid, options.signal)
        except ProcessLookupError:
            continue
        told.append(pid)
    return told
