# SPDX-License-Identifier: Apache-2.0
"""The change token of a node with AMD GPUs: what a CDI spec of its devices depends on.

It is readable text, `generation=80,gpus=8:0c1d2e3f,nodes=128:5e6f7a8b,modes=CPX/NPS1*8`, so that a
mismatch can name what changed. KFD counts its topology's changes in `generation`, from 0 when the
driver is loaded; `nodes` covers a driver that was loaded again and got other DRM nodes.
"""

from __future__ import annotations

from binascii import crc32

from gpuhook.errors import fault
from gpuhook.host.hot import timely_read
from gpuhook.vendors.amd.hot import amd_sysfs

SECONDS = 10.0  # a driver that resets a GPU may block readers of its files


def token(host_root: str) -> str:
    """Return the token of the node whose /sys is below `host_root`, "" without the driver."""
    root = host_root.rstrip("/")
    if not amd_sysfs.is_ready(host_root):
        return ""
    gpus = amd_sysfs.gpu_addresses(host_root)
    modes = [partition_mode(amd_sysfs.directory_of(root, gpu)) for gpu in gpus]
    parts = (
        "generation=" + (amd_sysfs.line(root + amd_sysfs.TOPOLOGY + "/generation_id") or ""),
        "gpus=" + _digest(gpus),
        "nodes=" + _digest(_drm_nodes(root, gpus)),
        "modes=" + _runs(modes),
    )
    return ",".join(parts)


def timely(host_root: str) -> tuple[str, bool]:
    """Return token(), and whether KFD has a GPU.

    GH2561 if the driver holds back the files for more than SECONDS.
    """

    def read() -> str:
        return f"{amd_sysfs.has_kfd_gpu(host_root):d}{token(host_root)}"

    found = timely_read.text(read, SECONDS)
    if found is None:
        path = host_root.rstrip("/") + amd_sysfs.DRIVER
        raise fault("GH2561", seconds=f"{SECONDS:g}", path=path)
    return found[1:], found[0] == "1"


def differences(recorded: str, current: str) -> list[str]:
    """Return one phrase for each part in which two tokens differ, [] if they are equal."""
    old, new = _parsed(recorded), _parsed(current)
    return [
        f"{part}: was {old.get(part) or 'none'}, is {new.get(part) or 'none'}"
        for part in dict.fromkeys([*old, *new])
        if old.get(part) != new.get(part)
    ]


def _drm_nodes(root: str, gpus: list[str]) -> list[str]:
    """Return "<device>/<node>" of each DRM node of the GPUs and of all partitions' devices."""
    known = set(gpus)
    found = []
    for name in amd_sysfs.names(root + amd_sysfs.DRM):
        if amd_sysfs.minor(name, "card") is None and amd_sysfs.minor(name, "renderD") is None:
            continue  # a connector
        device = amd_sysfs.device_of(f"{root}{amd_sysfs.DRM}/{name}")
        if device in known or amd_sysfs.partition_id(device):
            found.append(f"{device}/{name}")
    return found


def partition_mode(directory: str) -> str:
    """Return "CPX/NPS4" of a GPU; "-" for what it cannot tell."""
    return "/".join(amd_sysfs.mode(f"{directory}/{name}") or "-" for name in amd_sysfs.MODES)


def _runs(modes: list[str]) -> str:
    """Return "SPX/NPS1*5+CPX/NPS1*3" for five GPUs in one mode before three in another."""
    runs: list[list[str]] = []
    for mode in modes:
        if runs and runs[-1][0] == mode:
            runs[-1].append(mode)
        else:
            runs.append([mode])
    return "+".join(f"{run[0]}*{len(run)}" for run in runs)


def _digest(names: list[str]) -> str:
    return f"{len(names)}:{crc32(chr(10).join(names).encode()):08x}"


def _parsed(token: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in token.split(","))
    return {name: value for name, _, value in pairs if name}
