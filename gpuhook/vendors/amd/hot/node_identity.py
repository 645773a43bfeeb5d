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
    known = {path: _identity(path, host_root.rstrip("/")) for path in paths}
    return {path: found for path, found in known.items() if found != _NONE}


def changes(recorded: Mapping[str, str], host_root: str) -> list[str]:
    """Return a phrase for each node whose device is not the recorded one."""
    found = []
    for path, before in recorded.items():
        now = _identity(path, host_root.rstrip("/"))
        if not _is_same(before, now):
            found.append(f"{path} was {before}, is {now}")
    return found


def _identity(path: str, root: str) -> str:
    name = path.removeprefix(amd_words.DRM)
    device = amd_sysfs.device_of(f"{root}{amd_sysfs.DRM}/{name}") if name != path else ""
    if not device or not amd_sysfs.is_served(root, device):
        return _NONE
    minor = amd_sysfs.minor(name, "renderD")
    if minor is None:
        return device  # a card: a container also has the render node of the device
    is_partition = amd_sysfs.partition_id(device) is not None
    return _partition(root, device, minor) if is_partition else device + _mode(root, device)


def _partition(root: str, device: str, minor: int) -> str:
    try:
        bus = _bus(root, minor)
    except PermissionError:
        return device
    if bus is None:
        return f"{device} {_UNLISTED}"
    gpu = next((one for one in amd_sysfs.gpu_addresses(root) if one.startswith(bus)), "")
    return f"{device} of {gpu}{_mode(root, gpu)}" if gpu else device


def _bus(root: str, minor: int) -> str | None:
    """Return how the address of the GPU with a render node begins, None if KFD has none.

    Raises PermissionError if KFD refuses one of its files.
    """
    denied = None
    for name in amd_sysfs.names(root + _NODES):
        try:
            lines = amd_sysfs.text(f"{root}{_NODES}/{name}/properties").splitlines()
        except PermissionError as error:
            denied = error
            continue
        except OSError:
            continue
        facts = dict(line.split(" ", 1) for line in lines if " " in line)
        if facts.get("drm_render_minor") == str(minor):
            domain, location = (_number(facts.get(key)) for key in ("domain", "location_id"))
            return f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}."
    if denied is not None:
        raise denied
    return None


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
