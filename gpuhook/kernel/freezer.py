# SPDX-License-Identifier: Apache-2.0
"""The cgroup freezer: whether a process is held still.

Sources: Documentation/admin-guide/cgroup-v1/freezer-subsystem.rst (freezer.state), cgroup-v2.rst
(cgroup.events, "frozen"). Both tell the effective state: a frozen parent counts.
"""

from __future__ import annotations

import os

from gpuhook.host.hot import files
from gpuhook.kernel import mountinfo
from gpuhook.kernel.cgroup import below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.kernel.mountinfo import Mount

_FROZEN = (b"FROZEN", b"FREEZING")


def is_frozen(cgroup: bytes) -> bool:
    """Return whether a process is frozen; `cgroup` is the content of its /proc/PID/cgroup.

    False where its hierarchy is not mounted for us, or its cgroup is outside of what we see.
    """
    mounted = mountinfo.parse(files.read("/proc/self/mountinfo"))
    for line in cgroup.split(b"\n"):
        _, _, rest = os.fsdecode(line).partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon:
            continue
        for mount in mounted:
            if not _has_freezer(mount, controllers):
                continue
            inside = below(path, mount.root)
            if inside is not None and _says_frozen(mount.target + inside):
                return True
    return False


def _has_freezer(mount: Mount, controllers: str) -> bool:
    """Return whether a mount is the hierarchy of a line of /proc/PID/cgroup, and has a freezer."""
    if not controllers:
        return mount.fstype == "cgroup2"
    return (
        mount.fstype == "cgroup"
        and "freezer" in controllers.split(",")
        and "freezer" in mount.features
    )


def _says_frozen(directory: str) -> bool:
    events = _words(os.path.join(directory, "cgroup.events"))
    if events:
        return dict(zip(events[::2], events[1::2])).get(b"frozen") == b"1"
    return any(word in _FROZEN for word in _words(os.path.join(directory, "freezer.state")))


def _words(path: str) -> list[bytes]:
    """Return the words of a file, [] if it is not there: the root of a hierarchy has neither."""
    try:
        return files.read(path, 4096).split()
    except OSError:
        return []
