# SPDX-License-Identifier: Apache-2.0
"""The MPS control daemons that earlier plugins of this node have started, by a file of each.

A daemon outlives its plugin, and the GPUs that it had are for one process alone until their compute
mode is set back. So the next plugin has to know of a daemon that nobody wants any more.
"""

from __future__ import annotations

import os

from gpuhook.device_plugin.mps.mps_plan import MpsPlan
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files, state

_NAME = "gpus"  # in the directory of the daemon: the UUID of a GPU per line
_MAX_SIZE = 1 << 16


def keep(plan: MpsPlan) -> None:
    """Note the GPUs of a daemon that is about to be started. Raises OSError."""
    text = "".join(f"{uuid}\n" for uuid in plan.uuids)
    files.replace(os.path.join(plan.root, _NAME), text.encode(), mode=0o644)


def forget(plan: MpsPlan) -> None:
    """Take the note away. Raises OSError, but not where there is none."""
    try:
        os.unlink(os.path.join(plan.root, _NAME))
    except FileNotFoundError:
        return


def orphan_daemons(mps_root: str) -> list[MpsPlan]:
    """Return the daemons that were started and never stopped; their limits are not known."""
    try:
        names = sorted(os.listdir(mps_root))
    except OSError:
        return []
    plans = []
    for name in names:
        uuids = _uuids(os.path.join(mps_root, name, _NAME))
        if uuids:
            plans.append(MpsPlan(name, os.path.join(mps_root, name), uuids, 100, ()))
    return plans


def _uuids(path: str) -> tuple[str, ...]:
    try:
        if not state.usable(os.lstat(path)):
            return ()
        return tuple(files.read(path, _MAX_SIZE).decode("ascii").split())
    except (OSError, ValueError, GpuhookError):
        return ()
