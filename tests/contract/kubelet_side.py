# SPDX-License-Identifier: Apache-2.0
"""An allocation applied to a container, as the kubelet and a CRI engine do it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gpuhook.device_plugin.allocate.allocate import merged
from gpuhook.device_plugin.allocate.container_allocation import (
    AllocatedMount,
    Allocation,
    DeviceSpec,
)
from gpuhook.device_plugin.api import deviceplugin_pb2 as api
from tests.contract import bundles
from tests.contract.bundles import Bundle


def allocation_of(response: api.ContainerAllocateResponse) -> Allocation:
    """Return the allocation in the answer to Allocate for one container."""
    return Allocation(
        envs=dict(response.envs),
        mounts=tuple(
            AllocatedMount(m.container_path, m.host_path, m.read_only) for m in response.mounts
        ),
        devices=tuple(
            DeviceSpec(node.container_path, node.host_path, node.permissions)
            for node in response.devices
        ),
        annotations=dict(response.annotations),
        cdi_devices=tuple(device.name for device in response.cdi_devices),
    )


def joined(*responses: api.ContainerAllocateResponse) -> Allocation:
    """Return the allocation of a container with several resources, as the kubelet joins them.

    Of a variable with several values, the kubelet keeps one, of any of the answers.
    """
    values: dict[str, set[str]] = {}
    for response in responses:
        for name, value in response.envs.items():
            values.setdefault(name, set()).add(value)
    assert [name for name, found in values.items() if len(found) > 1] == []
    return merged([allocation_of(response) for response in responses])


def apply_allocation(given: Allocation, bundle: Bundle) -> None:
    """Apply `given` to config.json as an engine does, except its CDI names.

    A variable replaces that of the image; nodes have the numbers of the host's nodes, and a device
    rule each.
    """
    config = bundle.config()
    env = config["process"]["env"]
    names = {entry.partition("=")[0]: position for position, entry in enumerate(env)}
    for name, value in given.envs.items():
        if name in names:
            env[names[name]] = f"{name}={value}"
        else:
            env.append(f"{name}={value}")
    config.setdefault("annotations", {}).update(given.annotations)
    linux = config["linux"]
    for device in given.devices:
        node, rule = _node(device)
        linux.setdefault("devices", []).append(node)
        linux["resources"]["devices"].append(rule)
    bundle.write(config)
    for mount in given.mounts:
        how = "ro" if mount.read_only else "rw"
        bundle.mount(Path(mount.host_path), mount.container_path, "rbind", "rprivate", how)


def podman_options(given: Allocation) -> list[str]:
    """Return the options of podman for the variables and CDI devices of `given`."""
    others = [*given.mounts, *given.devices, *given.annotations]
    assert others == [], "podman is given no more than CDI names"
    words = [word for name in given.cdi_devices for word in ("--device", name)]
    for name, value in given.envs.items():
        words += ["--env", f"{name}={value}"]
    return words


def _node(device: DeviceSpec) -> tuple[dict[str, object], dict[str, object]]:
    status = os.stat(device.host_path)
    assert stat.S_ISCHR(status.st_mode), device
    major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
    node = bundles.device(device.container_path, major, minor)
    return node, bundles.rule(major, minor, device.permissions)
