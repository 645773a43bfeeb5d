# SPDX-License-Identifier: Apache-2.0
"""Which GPU or partition a DRM node is of, as text that the ledger keeps.

The driver numbers its nodes when it is loaded, and a change of the partition mode gives a node more
or less of its GPU. The name of a node alone does not identify what a running container has:

    0000:05:00.0 in SPX/NPS1
    amdgpu_xcp_3 of 0000:05:00.0 in CPX/NPS4

A card node has the first word only. What cannot be read, as during a reset, is left out, or is `-`.
"""

from __future__ import annotations

from gpuhook.vendors.amd.hot import amd_sysfs, amd_token, amd_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NONE = "no GPU or partition"
_UNLISTED = "that KFD does not list"
_IN = " in "
_NODES = amd_sysfs.TOPOLOGY + "/nodes"


def identities(paths: Iterable[str], host_root: str) -> dict[str, str]:
    """Return the identity of each DRM node among `paths` that is the driver's."""
    node = _Node(host_root.rstrip("/"))
    known = {path: node.identity(path) for path in paths}
    return {path: found for path, found in known.items() if found != _NONE}


def changes(recorded: Mapping[str, str], host_root: str) -> list[str]:
    """Return a phrase for each node whose device is not the recorded one."""
    node, found = _Node(host_root.rstrip("/")), []
    for path, before in recorded.items():
        now = node.identity(path)
        if not _is_same(before, now):
            found.append(f"{path} was {before}, is {now}")
    return found


class _Node:
    """The files of a host root; KFD's are read once, for all partitions."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._buses: dict[str, str] | None = None
        self._is_denied = False  # KFD refuses one of its files

    def identity(self, path: str) -> str:
        root, name = self._root, path.removeprefix(amd_words.DRM)
        device = amd_sysfs.device_of(f"{root}{amd_sysfs.DRM}/{name}") if name != path else ""
        if not device or not amd_sysfs.is_served(root, device):
            return _NONE
        minor = amd_sysfs.minor(name, "renderD")
        if minor is None:
            return device  # a card: a container also has the render node of the device
        is_partition = amd_sysfs.partition_id(device) is not None
        return self._partition(device, minor) if is_partition else device + _mode(root, device)

    def _partition(self, device: str, minor: int) -> str:
        if self._buses is None:
            self._buses = self._read_buses()
        bus = self._buses.get(str(minor))
        if bus is None:
            return device if self._is_denied else f"{device} {_UNLISTED}"
        gpus = amd_sysfs.gpu_addresses(self._root)
        gpu = next((one for one in gpus if one.startswith(bus)), "")
        return f"{device} of {gpu}{_mode(self._root, gpu)}" if gpu else device

    def _read_buses(self) -> dict[str, str]:
        """Return how the address of the GPU begins, by the minor number of each render node."""
        found: dict[str, str] = {}
        for name in amd_sysfs.names(self._root + _NODES):
            try:
                text = amd_sysfs.text(f"{self._root}{_NODES}/{name}/properties")
            except PermissionError:
                self._is_denied = True
                continue
            except OSError:
                continue
            facts = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
            domain, location = (_number(facts.get(key)) for key in ("domain", "location_id"))
            bus = f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}."
            found.setdefault(facts.get("drm_render_minor", ""), bus)
        return found


def _number(text: str | None) -> int:
    return int(text) if text is not None and amd_sysfs.is_number(text) else 0


def _mode(root: str, gpu: str) -> str:
    """Return " in SPX/NPS1", "" for a GPU that cannot be partitioned."""
    mode = amd_token.partition_mode(amd_sysfs.directory_of(root, gpu))
    return _IN + mode if mode.strip("-/") else ""


def _is_same(before: str, now: str) -> bool:
    """Return whether two identities agree in all that both have."""
    (old, _, old_modes), (new, _, new_modes) = before.partition(_IN), now.partition(_IN)
    is_known = " " in old and " " in new
    if now.endswith(_UNLISTED) or (old != new if is_known else old.split()[0] != new.split()[0]):
        return False
    pairs = zip(old_modes.split("/"), new_modes.split("/"))
    return all(one == two or not one.strip("-") or not two.strip("-") for one, two in pairs)
