# SPDX-License-Identifier: Apache-2.0
"""Devices that containers get with their GPUs: GPUDirect, RDMA and the IMEX channels.

Only devices of this node: a runtime fails on a variable that requests a missing one. Nodes and
files are those of NVIDIA's CDI library, its modes gds, gdrcopy, mofed and imex.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.device_plugin.allocate.container_allocation import AllocatedMount, DeviceSpec
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.vendors.plugin_place import Places

IMEX = "imex-channel"
_CHANNELS = "/dev/nvidia-caps-imex-channels"


@dataclass(frozen=True, slots=True)
class AuxiliaryDevice:
    """Devices of one CDI class, by name; `env` requests them from NVIDIA's runtime.

    `mounts` are the files that they need.
    """

    device_class: str
    devices: dict[str, tuple[DeviceSpec, ...]]
    env: str = ""
    mounts: tuple[AllocatedMount, ...] = ()


def find(configuration: Configuration, places: Places) -> tuple[AuxiliaryDevice, ...]:
    """Return the configured devices that this node has.

    Raises GH1856 for a missing IMEX channel that is required.
    """
    flags = configuration.flags
    found = []
    if flags.gdrcopy_enabled:
        found.append(_extra("gdrcopy", places, _present(places, "/dev", ("gdrdrv",))))
    if flags.gds_enabled:
        nodes = _present(places, "/dev", _names(places, "/dev", "nvidia-fs"))
        files = ("/run/udev", "/etc/cufile.json")
        found.append(_extra("gds", places, nodes, files))
    if flags.mofed_enabled:
        directory = "/dev/infiniband"
        names = [*_names(places, directory, "uverbs"), "rdma_cm"]
        found.append(_extra("mofed", places, _present(places, directory, names)))
    found.append(_imex(configuration, places))
    return tuple(extra for extra in found if extra.devices)


def _extra(
    device_class: str, places: Places, nodes: tuple[DeviceSpec, ...], files: tuple[str, ...] = ()
) -> AuxiliaryDevice:
    seen = [(path, places.driver.rstrip("/") + path) for path in files]
    mounts = tuple(AllocatedMount(p, places.on_host(at)) for p, at in seen if os.path.exists(at))
    devices = {"all": nodes} if nodes else {}
    return AuxiliaryDevice(device_class, devices, f"NVIDIA_{device_class.upper()}", mounts)


def _imex(configuration: Configuration, places: Places) -> AuxiliaryDevice:
    devices = {}
    for channel in configuration.imex.channel_ids:
        nodes = _present(places, _CHANNELS, (f"channel{channel}",))
        if nodes:
            devices[str(channel)] = nodes
        elif configuration.imex.required:
            path = f"{places.host_dev.rstrip('/')}{_CHANNELS}/channel{channel}"
            raise fault("GH1856", channel=channel, path=path)
    return AuxiliaryDevice(IMEX, devices)


def _names(places: Places, directory: str, start: str) -> list[str]:
    try:
        names = os.listdir(places.dev.rstrip("/") + directory)
    except OSError:
        return []
    found = [name for name in names if name.startswith(start) and name[len(start) :].isdigit()]
    return sorted(found, key=lambda name: int(name[len(start) :]))


def _present(places: Places, directory: str, names: Iterable[str]) -> tuple[DeviceSpec, ...]:
    paths = [f"{directory}/{name}" for name in names]
    seen = [(path, places.dev.rstrip("/") + path) for path in paths]
    return tuple(DeviceSpec(p, places.on_host(at)) for p, at in seen if os.path.exists(at))
