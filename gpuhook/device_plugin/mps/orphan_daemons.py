# SPDX-License-Identifier: Apache-2.0
"""Records of started MPS control daemons, for the next plugin of the node.

A daemon outlives its plugin, and its GPUs serve no other process until their compute mode is reset.
So the next plugin must find daemons that no resource needs any more.
"""

from __future__ import annotations

import os

from gpuhook.device_plugin.mps.mps_plan import MpsPlan
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files, state

_NAME = "gpus"  # in the directory of the daemon: one GPU UUID per line
_MAX_SIZE = 1 << 16


def record(plan: MpsPlan) -> None:
    """Record the GPUs of a daemon before its start. Raises OSError."""
    text = "".join(f"{uuid}\n" for uuid in plan.uuids)
    files.replace(os.path.join(plan.root, _NAME), text.encode(), mode=0o644)


def forget(plan: MpsPlan) -> None:
    """Remove the record, if it exists. Raises OSError."""
    try:
        os.unlink(os.path.join(plan.root, _NAME))
    except FileNotFoundError:
        return


def orphan_daemons(mps_root: str) -> list[MpsPlan]:
    """Return the daemons that were started and never stopped; their limits are not recorded."""
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
