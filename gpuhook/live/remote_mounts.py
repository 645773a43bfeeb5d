# SPDX-License-Identifier: Apache-2.0
"""FUSE and NFS mounts of a container on paths that gpuhook reads.

Their servers may never answer. The kernel's list of mounts names them without asking a server.
"""

from __future__ import annotations

from contextlib import suppress

from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import files
from gpuhook.kernel import mountinfo
from gpuhook.live.common_edits import common_edits
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.warm import live_jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.entry.plan_context import PlanContext
    from gpuhook.kernel.mountinfo import Mount
    from gpuhook.target.running_container import Target


def require_none(target: Target, context: PlanContext | None) -> None:
    """Raise GH1762 if a walk to the driver's files and nodes of a container enters such a mount.

    The container's root may be one, and a file system of the host's root or driver root adds no
    server that gpuhook does not already wait for.
    """
    mounts = target.held.process.mounts()
    remote = [mount for mount in mounts if mount.is_remote and mount.target != "/"]
    if not remote:
        return
    known = _devices_of_host(["/", (context and context.settings.driver_root) or "/"])
    paths = set(_paths(target, mounts, context))
    for mount in remote:
        if mount.device not in known and any(mount.is_over(path) for path in paths):
            raise fault("GH1762", container=target.found.id, fstype=mount.fstype, path=mount.target)


def _paths(target: Target, mounts: list[Mount], context: PlanContext | None) -> Iterator[str]:
    """Yield the paths in a container that are read."""
    traces = [vendor.traces for vendor in vendors()]
    yield from (path for one in traces for path in one.NODE_DIRECTORIES)
    yield from live_jobs.paths()
    yield from (m.target for m in mounts if any(one.is_driver_mount(m.target) for one in traces))
    edits = [target.granted]
    with suppress(GpuhookError):  # a node without a spec
        edits += [common_edits(context.node)] if context else []
    for one in edits:
        yield from (mount["containerPath"] for mount in one.get("mounts") or ())
        yield from (node["path"] for node in one.get("deviceNodes") or ())
    for job in target.all_jobs:
        yield from (path for _, path in job.links)


def _devices_of_host(paths: list[str]) -> set[str]:
    """Return the file systems of these paths of the host."""
    found = set()
    for name in ("/proc/self/mountinfo", "/proc/1/mountinfo"):
        try:
            mounts = mountinfo.parse(files.read(name, mountinfo.MAX_BYTES))
        except OSError:
            continue
        for path in paths:
            over = [mount for mount in mounts if mount.is_over(path)]
            found |= {mount.device for mount in sorted(over, key=lambda one: len(one.target))[-1:]}
    return found
