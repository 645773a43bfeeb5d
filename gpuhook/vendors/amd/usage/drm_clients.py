# SPDX-License-Identifier: Apache-2.0
"""The DRM clients of the amdgpu driver: who has an open device node, and its memory.

Source: Documentation/gpu/drm-usage-stats.rst and drivers/gpu/drm/amd/amdgpu/amdgpu_fdinfo.c. Any
process may give a device node any name, so each descriptor with a path is examined; only the kernel
writes fdinfo. A client is identified by its PCI address and drm-client-id: processes that share a
descriptor, such as a parent and its children, share the client. `drm-pdev` of a partition is the
PCI address of its GPU: the minor of the device node tells partitions apart.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass

from gpuhook.host.hot import procfs
from gpuhook.vendors.amd.hot import amd_sysfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_NODE = re.compile(r"/dev/dri/(?:renderD|card)([0-9]{1,6})$")
_DRIVER = b"amdgpu"
_MEMORY = (b"drm-resident-vram", b"drm-memory-vram", b"drm-total-vram")  # the first present wins
_UNITS = {b"": 1, b"KiB": 1 << 10, b"MiB": 1 << 20, b"GiB": 1 << 30}
_MAX_FDINFO = 16384
_MAX_DESCRIPTORS = 1 << 16  # of one process, after which its clients are unknown
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class DrmClient:
    """A client of a process. `minor` is that of its node; `vram_bytes` None: not reported."""

    pid: int
    pci_address: str
    identity: bytes
    minor: int | None
    vram_bytes: int | None


@dataclass(frozen=True, slots=True)
class DrmClients:
    """All clients, and the number of processes that could not be read, also in part."""

    clients: tuple[DrmClient, ...] = ()
    unread: int = 0


def drm_clients(proc: str) -> DrmClients:
    """Return the clients of all processes in the procfs at `proc`."""
    found: list[DrmClient] = []
    unread = 0
    try:
        pids = sorted(procfs.pids(proc))
    except OSError:
        return DrmClients(unread=1)
    for pid in pids:
        try:
            found += _process_clients(proc, pid)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has exited
        except OSError:
            unread += 1
    return DrmClients(tuple(found), unread)


def _process_clients(proc: str, pid: int) -> list[DrmClient]:
    """Return the clients of a process; raises OSError if they cannot all be read."""
    links = os.open(f"{proc}/{pid}/fd", _DIRECTORY)
    try:
        names = os.listdir(links)
        if not names:
            return []
        if len(names) > _MAX_DESCRIPTORS:
            raise OSError(f"process {pid} has {len(names)} open files")
        facts = os.open(f"{proc}/{pid}/fdinfo", _DIRECTORY)
        try:
            return list(_clients(pid, names, links, facts))
        finally:
            os.close(facts)
    finally:
        os.close(links)


def _clients(pid: int, names: list[str], links: int, facts: int) -> Iterator[DrmClient]:
    seen = set()
    for name in names:
        try:
            target = os.readlink(name, dir_fd=links)
            if not target.startswith("/"):  # a socket, a pipe
                continue
            keys = _keys(name, facts)
        except FileNotFoundError:
            continue  # closed meanwhile
        client = keys.get(b"drm-client-id")
        if keys.get(b"drm-driver") != _DRIVER or not client:
            continue
        address = keys.get(b"drm-pdev", b"").decode("ascii", "replace")
        if (address, client) not in seen:
            seen.add((address, client))
            yield DrmClient(pid, address, client, _minor(name, links, target), _vram(keys))


def _keys(name: str, facts: int) -> dict[bytes, bytes]:
    """Return the keys of a fdinfo that is a DRM device's, {} of another one."""
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=facts)
    try:
        text = b""
        while len(text) < _MAX_FDINFO and (chunk := os.read(descriptor, _MAX_FDINFO)):
            text += chunk
    finally:
        os.close(descriptor)
    keys: dict[bytes, bytes] = {}
    for line in text.splitlines() if b"drm-driver:" in text else ():
        key, _, value = line.partition(b":")
        keys.setdefault(key.strip(), value.strip())
    return keys


def _minor(name: str, links: int, target: str) -> int | None:
    """Return the minor of the DRM node behind a descriptor; without it, that of its usual name."""
    try:
        found = os.stat(name, dir_fd=links)
        if stat.S_ISCHR(found.st_mode) and os.major(found.st_rdev) == amd_sysfs.DRM_MAJOR:
            return os.minor(found.st_rdev)
    except OSError:
        pass  # removed, or in a tree of files
    usual = _NODE.search(target.removesuffix(" (deleted)"))
    return int(usual[1]) if usual else None


def _vram(keys: dict[bytes, bytes]) -> int | None:
    value = next((keys[key] for key in _MEMORY if key in keys), b"")
    amount, _, unit = value.partition(b" ")
    if not amd_sysfs.is_number(amount.decode("ascii", "replace")) or unit not in _UNITS:
        return None
    return int(amount) * _UNITS[unit]
