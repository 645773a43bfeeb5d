# SPDX-License-Identifier: Apache-2.0
"""The devices of a node other than its GPUs, looked up at the time of the request.

Loaded only for a container that requests one of these kinds: GPUDirect Storage, MOFED (InfiniBand),
GDRCopy, NVSwitch, IMEX channels, and MIG management. Sources: the device names of NVIDIA's
nvidia-fs, gdrcopy and open-gpu-kernel-modules, of rdma-core, the IMEX guide, and the MIG User
Guide, "Device Nodes and Capabilities"; mounts are those of NVIDIA's container toolkit.
"""

from __future__ import annotations

import os
import stat

from gpuhook.errors import GpuhookError, fault
from gpuhook.vendors.nvidia.hot import mig_capabilities, vocabulary
from gpuhook.vendors.nvidia.hot.extras import driver_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import ContainerEdits, DeviceNode, Mount
    from gpuhook.vendors.nvidia.hot.mig_capabilities import Capability

EVERY = "all"
IMEX_DIRECTORY = "/dev/nvidia-caps-imex-channels"
IMEX_CHANNEL = "channel"
MANAGEMENT_NAMES = ("config", "monitor")
MANAGEMENT_FILES = mig_capabilities.CAPABILITIES + "/mig"
_IMEX_MAJOR = "nvidia-caps-imex-channels"  # in /proc/devices
_IMEX_CHANNELS = 1 << 20
_MOUNT_OPTIONS = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
_WORLD = 0o006
# Kinds with one device, `all`: the directory of its nodes, what their names are or begin with.
_NODES: dict[str, tuple[str, tuple[str, ...], str]] = {
    vocabulary.GDS_KIND: ("/dev", (), "nvidia-fs"),
    vocabulary.MOFED_KIND: ("/dev/infiniband", ("rdma_cm",), "uverbs"),
    vocabulary.GDRCOPY_KIND: ("/dev", ("gdrdrv",), ""),
    vocabulary.NVSWITCH_KIND: ("/dev", (), "nvidia-nvswitch"),
}
# Files that GPUDirect Storage reads as well.
_UDEV, _CUFILE = "/run/udev", "/etc/cufile.json"


class DeviceRoots:
    """The roots of a node's /dev, of its driver's files, and of its /proc."""

    __slots__ = ("dev", "driver", "host")

    def __init__(self, dev: str = "/", driver: str = "/", host: str = "/") -> None:
        self.dev = dev
        self.driver = driver
        self.host = host


def require_channel(number: str, where: str) -> None:
    """Raise GH1036 for a text that is not the number of an IMEX channel."""
    if not _is_channel(number):
        raise fault("GH1036", where=where, number=number)


def _is_channel(number: str) -> bool:
    is_number = number.isascii() and number.isdigit() and len(number) <= 7
    return is_number and str(int(number)) == number and int(number) < _IMEX_CHANNELS


def whole(kind: str, roots: DeviceRoots) -> ContainerEdits:
    """Return the edits of a kind that has one device; GH1037 if this node has none."""
    directory, exact, beginning = _NODES[kind]
    named = [
        name
        for name in _listed(roots.dev, directory)
        if name in exact or (beginning and name.startswith(beginning))
    ]
    nodes = _nodes([f"{directory}/{name}" for name in named], roots)
    if not nodes:
        raise fault("GH1037", name=f"{kind}={EVERY}", looked=looked_for(kind), why="")
    found = edits(nodes)
    if kind == vocabulary.GDS_KIND:
        mounts = [_mount(_UDEV, (roots.dev, roots.driver))]
        mounts.append(_mount(_CUFILE, (roots.driver, roots.dev)))
        found["mounts"] = [mount for mount in mounts if mount is not None]
    return found


def looked_for(kind: str) -> str:
    """Return the paths of the devices of a kind, as patterns for people."""
    if kind == vocabulary.IMEX_KIND:
        return f"{IMEX_DIRECTORY}/{IMEX_CHANNEL}*"
    directory, exact, beginning = _NODES[kind]
    names = [*([beginning + "*"] if beginning else ()), *exact]
    return ", ".join(f"{directory}/{name}" for name in names)


def channel(name: str, roots: DeviceRoots) -> ContainerEdits | None:
    """Return the edits of the IMEX channel `3` or `channel3`, None for another name.

    Raises GH1037 if this node has no such channel.
    """
    number = name.removeprefix(IMEX_CHANNEL)
    if not _is_channel(number):
        return None
    path = f"{IMEX_DIRECTORY}/{IMEX_CHANNEL}{number}"
    status = _stat(roots.dev, path)
    major = mig_capabilities.device_major(_IMEX_MAJOR, roots.host)
    if status is None or not _is_of(status, major, int(number)):
        why = "" if status is None else f"; the existing node is not {major}:{number}"
        raise fault("GH1037", name=f"{vocabulary.IMEX_KIND}={name}", looked=path, why=why)
    return edits([_entry(path, status, roots)])


def channel_numbers(roots: DeviceRoots) -> list[str]:
    """Return the numbers of this node's IMEX channels, in order."""
    names = _listed(roots.dev, IMEX_DIRECTORY)
    numbers = [name[len(IMEX_CHANNEL) :] for name in names if name.startswith(IMEX_CHANNEL)]
    major = mig_capabilities.device_major(_IMEX_MAJOR, roots.host)
    found = []
    for number in filter(_is_channel, numbers):
        status = _stat(roots.dev, f"{IMEX_DIRECTORY}/{IMEX_CHANNEL}{number}")
        if status is not None and _is_of(status, major, int(number)):
            found.append(number)
    return sorted(found, key=int)


def channels(roots: DeviceRoots) -> ContainerEdits:
    """Return the edits of all IMEX channels; GH1037 if this node has none."""
    paths = [f"{IMEX_DIRECTORY}/{IMEX_CHANNEL}{number}" for number in channel_numbers(roots)]
    if not paths:
        looked = looked_for(vocabulary.IMEX_KIND)
        raise fault("GH1037", name=f"{vocabulary.IMEX_KIND}={EVERY}", looked=looked, why="")
    return edits(_nodes(paths, roots))


def management(name: str, roots: DeviceRoots) -> ContainerEdits | None:
    """Return the edits that let a container configure or monitor MIG, None for other names.

    Raises GH1210 or GH1216 if the node for that is missing.
    """
    if name not in (EVERY, *MANAGEMENT_NAMES):
        return None
    names = MANAGEMENT_NAMES if name == EVERY else (name,)
    return edits([_entry(*_management_node(one, roots), roots) for one in names])


def edits(nodes: list[DeviceNode]) -> ContainerEdits:
    """Return the edits that give a container `nodes`, and the groups that it needs to open them.

    Device nodes carry no numbers: the program that applies the edits reads the node itself.
    """
    found: ContainerEdits = {"deviceNodes": nodes}
    closed = [node for node in nodes if node["fileMode"] & _WORLD != _WORLD]
    gids = list(dict.fromkeys(node["gid"] for node in closed if node.get("gid")))
    if gids:
        found["additionalGids"] = gids
    return found


def _nodes(paths: list[str], roots: DeviceRoots) -> list[DeviceNode]:
    found = ((path, _stat(roots.dev, path)) for path in sorted(paths, key=numeric_order))
    return [_entry(path, status, roots) for path, status in found if status is not None]


def _entry(path: str, status: os.stat_result, roots: DeviceRoots) -> DeviceNode:
    entry: DeviceNode = {"path": path}
    if roots.dev.rstrip("/"):
        entry["hostPath"] = _host(roots.dev, path)
    entry["fileMode"] = stat.S_IMODE(status.st_mode)
    entry["permissions"] = "rw"
    if status.st_gid:
        entry["gid"] = status.st_gid
    return entry


def _mount(path: str, roots: tuple[str, ...]) -> Mount | None:
    """Return the mount of `path` from the first root that has it, None if none does."""
    for root in roots:
        found = driver_root.place(root, path)
        if found is not None:
            return {"hostPath": found, "containerPath": path, "options": list(_MOUNT_OPTIONS)}
    return None


def _stat(root: str, path: str) -> os.stat_result | None:
    found = driver_root.place(root, path)
    if found is None:
        return None
    try:
        status = os.stat(found)
    except OSError:
        return None
    return status if stat.S_ISCHR(status.st_mode) else None


def _is_of(status: os.stat_result, major: int | None, minor: int) -> bool:
    """Return whether a node has these numbers; an unknown major matches any."""
    return os.minor(status.st_rdev) == minor and major in (None, os.major(status.st_rdev))


def _listed(root: str, directory: str) -> list[str]:
    try:
        return os.listdir(_host(root, directory))
    except OSError:
        return []


def _host(root: str, path: str) -> str:
    """Return the host path of `path` in `root`, links followed inside if it exists."""
    return driver_root.place(root, path) or root.rstrip("/") + path


def numeric_order(path: str) -> tuple[str, int]:
    """Return the sort key of a node: uverbs2 comes before uverbs10."""
    stem = path.rstrip("0123456789")
    return stem, int(path[len(stem) :] or -1)


def _management_node(name: str, roots: DeviceRoots) -> tuple[str, os.stat_result]:
    """Return the path and the status of the node of `config` or `monitor`.

    Raises GH1216 if the driver does not support it, GH1210 if the node is missing or wrong.
    """
    capability = management_capability(name, roots.host)
    if capability is None:
        minors, file = mig_capabilities.MINORS, f"{MANAGEMENT_FILES}/{name}"
        raise fault("GH1216", name=name, minors=minors, file=file)
    number = capability.minor
    path = vocabulary.capability_node(number)
    place = _host(roots.dev, path)
    try:
        status = os.stat(place, follow_symlinks=not roots.dev.rstrip("/"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise unusable_management_node(name, place, reason) from error
    known = mig_capabilities.device_major(mig_capabilities.MAJOR_NAME, roots.host)
    is_right = known is None or status.st_rdev == os.makedev(known, number)
    if not (stat.S_ISCHR(status.st_mode) and is_right):
        reason = f"it is not the character device {'?' if known is None else known}:{number}"
        raise unusable_management_node(name, place, reason)
    return path, status


def unusable_management_node(name: str, path: str, reason: str) -> GpuhookError:
    """Return GH1210 for the node of `config` or `monitor`."""
    way = "create it with `gpuhook system create-device-nodes --replace` (by hand: nvidia-modprobe"
    return fault("GH1210", path=path, reason=reason, way=f"{way} -f {MANAGEMENT_FILES}/{name})")


def management_capability(name: str, host_root: str) -> Capability | None:
    """Return the capability of `config` or `monitor`, None if the driver does not support it."""
    minor = mig_capabilities.minors(host_root).get(name)
    return mig_capabilities.capability(host_root, f"{MANAGEMENT_FILES}/{name}", minor)
