# SPDX-License-Identifier: Apache-2.0
"""Mounts of the host, and the mounts of a container that are its own.

The engine may have its own mount namespace, as in a kind node or a pod that runs Docker: the
container's volumes are then mounted neither in our namespace nor in that of the host's first
process. The container's parents are in the engine's.
"""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import fastjson, files, procfs
from gpuhook.kernel import mountinfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any

    from gpuhook.kernel.mountinfo import Mount

TMPFS = "tmpfs"


def tables(pid: int, *hosts: int | str) -> list[bytes]:
    """Return the mountinfo of the processes `hosts`, and of the parents of process `pid`.

    Parents in the mount namespace of `pid`, and what cannot be read without rights over the host,
    are left out.
    """
    own = _namespace(pid)
    found: dict[tuple[int, int] | None, bytes] = {None: b""}
    for one in (*hosts, *procfs.parents(pid)):
        namespace = _namespace(one)
        if namespace not in found and (namespace != own or one in hosts):
            found[namespace] = table(one)
    return list(found.values())


def table(pid: int | str) -> bytes:
    """Return the mountinfo of a process, empty if it cannot be read."""
    try:
        return files.read(f"/proc/{pid}/mountinfo", mountinfo.MAX_BYTES)
    except (OSError, GpuhookError):
        return b""


def _namespace(pid: int | str) -> tuple[int, int] | None:
    try:
        found = os.stat(f"/proc/{pid}/ns/mnt")
    except OSError:
        return None
    return found.st_dev, found.st_ino


def own_mounts(
    pid: int, mounts: list[Mount], volumes: Collection[str] | None = ()
) -> dict[int, int]:
    """Return the ids of the tmpfs mounts that only the container of process `pid` has.

    Each has the device of its file system, as in st_dev. A bind mount of the host's shows a file
    system that the host has mounted as well, or that config.json has at one of the paths `volumes`
    or below it: the engine's namespace may be gone. `volumes` is None without a config.json: only
    the /dev that a runtime makes is the container's then.
    """
    host = {mount.device for mount in _host_mounts(pid)}
    host.update(one.device for one in mounts if any(map(one.is_below, volumes or ())))
    own = [one for one in mounts if one.fstype == TMPFS and one.device not in host]
    if volumes is None:
        own = [one for one in own if (one.target, one.root) == ("/dev", "/")]
    return {mount.id: os.makedev(*map(int, mount.device.split(":"))) for mount in own}


def volumes(spec: dict[str, Any]) -> list[str]:
    """Return the paths at which a config.json binds files of the host."""
    mounts = fastjson.objects(spec, "mounts")
    return ["/" + str(one.get("destination")).lstrip("/") for one in mounts if _is_bind(one)]


def places(
    paths: Iterable[str], mounts: list[Mount], above: str, real: Callable[[str], str]
) -> list[str]:
    """Return where a runtime has mounted these paths of a root at `above`: it resolves links.

    `real` resolves them. A path with a mount needs no walk, and one below FUSE or NFS may not end.
    """
    targets = {mount.target for mount in mounts}
    remote = [mount for mount in mounts if mount.is_remote]
    return [
        above + path
        if above + path in targets or any(one.is_over(above + path) for one in remote)
        else above + real(path)
        for path in paths
    ]


def _is_bind(mount: dict[str, Any]) -> bool:
    options = fastjson.array(mount, "options")
    return mount.get("type") == "bind" or "bind" in options or "rbind" in options


def propagating_mounts(pid: int, mounts: list[Mount]) -> set[int]:
    """Return the ids of the mounts of the container below which new mounts propagate to the host.

    They share a peer group with a mount of the host, or a mount of the host follows them.
    """
    host = {group for mount in _host_mounts(pid) for group in (mount.shared, mount.master)}
    return {mount.id for mount in mounts if mount.shared and mount.shared in host}


def _host_mounts(pid: int) -> list[Mount]:
    return [mount for one in tables(pid, 1, "self") for mount in mountinfo.parse(one)]
