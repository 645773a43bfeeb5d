# SPDX-License-Identifier: Apache-2.0
"""What a node has beside GPUs, looked for at the very moment: no spec is needed, none is stale.

Loaded only for a container that asks for one of these kinds: GPUDirect Storage, MOFED (InfiniBand),
GDRCopy, NVSwitch, IMEX channels, and access to the administration of MIG. Sources: the device names
of NVIDIA's nvidia-fs, gdrcopy and open-gpu-kernel-modules, of rdma-core, and the IMEX guide; what
comes with each is as in NVIDIA's container toolkit.
"""

from __future__ import annotations

import os
import stat

from gpuhook.cdi.hot.compiled_spec import Compiled
from gpuhook.errors import GpuhookError, fault
from gpuhook.vendors.nvidia.hot import management_nodes, vocabulary
from gpuhook.vendors.nvidia.hot.driver_root import place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import ContainerEdits, DeviceNode, Mount
    from gpuhook.cdi.hot.registry import Registry

EVERY = "all"
PLACE = "the node itself"  # stands where the path of a spec file stands
IMEX_DIRECTORY = "/dev/nvidia-caps-imex-channels"
IMEX_CHANNEL = "channel"
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
# What GPUDirect Storage reads besides, and in which root that is looked for first.
_UDEV, _CUFILE = "/run/udev", "/etc/cufile.json"


class DeviceRoots:
    """Where a node's /dev, its driver's files, and its /proc are."""

    __slots__ = ("dev", "driver", "host")

    def __init__(self, dev: str = "/", driver: str = "/", host: str = "/") -> None:
        self.dev = dev
        self.driver = driver
        self.host = host


class OnTheSpot(Compiled):
    """The devices of one kind as they are now, in the place of a compiled spec."""

    __slots__ = ("_roots",)

    def __init__(self, kind: str, roots: DeviceRoots) -> None:
        super().__init__(PLACE, b"\n{}\n")
        self.kind = kind
        self._roots = roots

    def device(self, name: str) -> ContainerEdits | None:
        """Return the edits of a device; raises the fault that says what this node lacks."""
        if self.kind == vocabulary.IMEX_KIND:
            return channels(self._roots) if name == EVERY else channel(name, self._roots)
        if self.kind == vocabulary.MIG_KIND:
            return management(name, self._roots)
        return whole(self.kind, self._roots) if name == EVERY else None

    def names(self) -> list[str]:
        """Return the names of the devices; `all` where that is one of them."""
        return [*management_nodes.NAMES] if self.kind == vocabulary.MIG_KIND else [EVERY]


def beside(registry: Registry, kinds: list[str], roots: DeviceRoots) -> Registry:
    """Return `registry` with those of `kinds` that it has no spec of as this node has them."""
    missing = [kind for kind in kinds if not _has(registry, kind)]
    return registry.over([OnTheSpot(kind, roots) for kind in missing]) if missing else registry


def _has(registry: Registry, kind: str) -> bool:
    try:
        return bool(registry.kind(kind))
    except GpuhookError:
        return False


def require_device(registry: Registry, name: str) -> None:
    """Raise what says why a device of these kinds cannot be had: `name` is qualified.

    GH1042 for one that is not in the node's own spec of the kind; that counts where there is one.
    """
    kind, _, device = name.partition("=")
    if device in ("none", EVERY):
        return
    try:
        registry.device(name)
    except GpuhookError as error:
        specs = registry.kind(kind)
        if error.code != "GH1102" or isinstance(specs[0], OnTheSpot):
            raise
        mode, paths = vocabulary.EXTRA_KINDS[kind], ", ".join(spec.path for spec in specs)
        raise fault("GH1042", name=name, files=paths, mode=mode) from error


def require_channel(number: str, where: str) -> None:
    """Raise GH1036 for what is no IMEX channel's number."""
    if not _is_channel(number):
        raise fault("GH1036", where=where, number=number)


def _is_channel(number: str) -> bool:
    is_number = number.isascii() and number.isdigit() and len(number) <= 7
    return is_number and str(int(number)) == number and int(number) < _IMEX_CHANNELS


def whole(kind: str, roots: DeviceRoots) -> ContainerEdits:
    """Return the edits of a kind that has one device; GH1037 if this node has nothing of it."""
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
    """Return the paths that devices of a kind have, as people write them."""
    if kind == vocabulary.IMEX_KIND:
        return f"{IMEX_DIRECTORY}/{IMEX_CHANNEL}*"
    directory, exact, beginning = _NODES[kind]
    names = [*([beginning + "*"] if beginning else ()), *exact]
    return ", ".join(f"{directory}/{name}" for name in names)


def channel(name: str, roots: DeviceRoots) -> ContainerEdits | None:
    """Return the edits of the IMEX channel `3` or `channel3`, None for what names none.

    Raises GH1037 if this node has no such channel.
    """
    number = name.removeprefix(IMEX_CHANNEL)
    if not _is_channel(number):
        return None
    path = f"{IMEX_DIRECTORY}/{IMEX_CHANNEL}{number}"
    status = _stat(roots.dev, path)
    major = management_nodes.major(_IMEX_MAJOR, roots.host)
    if status is None or not _is_of(status, major, int(number)):
        why = "" if status is None else f"; the node that is there is not {major}:{number}"
        raise fault("GH1037", name=f"{vocabulary.IMEX_KIND}={name}", looked=path, why=why)
    return edits([_entry(path, status, roots)])


def channel_numbers(roots: DeviceRoots) -> list[str]:
    """Return the numbers of the IMEX channels that this node has, in order."""
    names = _listed(roots.dev, IMEX_DIRECTORY)
    numbers = [name[len(IMEX_CHANNEL) :] for name in names if name.startswith(IMEX_CHANNEL)]
    major = management_nodes.major(_IMEX_MAJOR, roots.host)
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

    Raises GH1214 to GH1216 where the node for that cannot be had.
    """
    if name == EVERY:
        parts = [
            management_nodes.find(one, roots.dev, roots.host) for one in management_nodes.NAMES
        ]
        return edits([_entry(path, status, roots) for path, status in parts])
    if name not in management_nodes.NAMES:
        return None
    path, status = management_nodes.find(name, roots.dev, roots.host)
    return edits([_entry(path, status, roots)])


def edits(nodes: list[DeviceNode]) -> ContainerEdits:
    """Return the edits that give a container `nodes`, and the groups without which it can't open.

    Device nodes carry no numbers: whoever applies the edits looks at the node itself.
    """
    found: ContainerEdits = {"deviceNodes": nodes}
    closed = [node for node in nodes if node["fileMode"] & _WORLD != _WORLD]
    gids = list(dict.fromkeys(node["gid"] for node in closed if node.get("gid")))
    if gids:
        found["additionalGids"] = gids
    return found


def _nodes(paths: list[str], roots: DeviceRoots) -> list[DeviceNode]:
    """Return those of `paths` that are character devices."""
    found = ((path, _stat(roots.dev, path)) for path in sorted(paths, key=_order))
    return [_entry(path, status, roots) for path, status in found if status is not None]


def _entry(path: str, status: os.stat_result, roots: DeviceRoots) -> DeviceNode:
    entry: DeviceNode = {"path": path}
    if roots.dev.rstrip("/"):
        entry["hostPath"] = place(roots.dev, path) or _host(roots.dev, path)
    entry["fileMode"] = stat.S_IMODE(status.st_mode)
    entry["permissions"] = "rw"
    if status.st_gid:
        entry["gid"] = status.st_gid
    return entry


def _mount(path: str, roots: tuple[str, ...]) -> Mount | None:
    """Return the mount of `path` out of the first root that has it, None if none does."""
    for root in roots:
        found = place(root, path)
        if found is not None:
            return {"hostPath": found, "containerPath": path, "options": list(_MOUNT_OPTIONS)}
    return None


def _stat(root: str, path: str) -> os.stat_result | None:
    """Return what is at `path`, None for what is no character device."""
    found = place(root, path)
    if found is None:
        return None
    try:
        status = os.stat(found)
    except OSError:
        return None
    return status if stat.S_ISCHR(status.st_mode) else None


def _is_of(status: os.stat_result, major: int | None, minor: int) -> bool:
    """Return whether a node has these numbers; a major that nobody knows is any."""
    return os.minor(status.st_rdev) == minor and major in (None, os.major(status.st_rdev))


def _listed(root: str, directory: str) -> list[str]:
    try:
        return os.listdir(place(root, directory) or _host(root, directory))
    except OSError:
        return []


def _host(root: str, path: str) -> str:
    return root.rstrip("/") + path


def _order(path: str) -> tuple[str, int]:
    """Return the sort key of a node: uverbs2 comes before uverbs10."""
    stem = path.rstrip("0123456789")
    return stem, int(path[len(stem) :] or -1)
