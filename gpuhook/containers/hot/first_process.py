# SPDX-License-Identifier: Apache-2.0
"""The first process of a container, as runc and crun keep it with their state."""

from __future__ import annotations

import os

from gpuhook.host.hot import fastjson, procfs, state

# File in ROOT/ID -> the keys of the pid and of the start time, in clock ticks since boot.
KEYS = {
    "state.json": ("init_process_pid", "init_process_start"),  # runc
    "status": ("pid", "process-start-time"),  # crun
}
_MAX_STATE = 16 << 20


def has_exited(root: str, identity: str) -> bool:
    """Return whether the first process of a container is known to have exited.

    CRI-O keeps the state of such a container until the kubelet removes it.
    """
    for name, (pid_key, start_key) in KEYS.items():
        raw = state.read(os.path.join(root, identity, name), _MAX_STATE)
        try:
            document = fastjson.loads(raw) if raw else None
        except ValueError:
            continue
        if isinstance(document, dict):
            pid, started = document.get(pid_key), document.get(start_key)
            # 0: the runtime does not know it.
            if isinstance(pid, int) and isinstance(started, int) and pid > 0 and started > 0:
                return procfs.start_time(pid) != started
            return False
    return False
