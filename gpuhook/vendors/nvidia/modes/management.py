# SPDX-License-Identifier: Apache-2.0
"""Mode management: every device node of the driver as one device, for GPU management containers.

NVML is not loaded: containers that make the driver work use this mode, too. Nodes for fabrics and
storage have their own modes, and management programs need no graphics.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace

from gpuhook.errors import fault
from gpuhook.vendors.nvidia.devices import driver_nodes
from gpuhook.vendors.nvidia.driver import driver_files
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.hot.host_fingerprint import fingerprint, module_version
from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode, Driver, Node
from gpuhook.vendors.nvidia.spec import driver_edits, gpu_spec
from gpuhook.vendors.nvidia.spec.generate_options import Described
from gpuhook.vendors.nvidia.warm import hook_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.discover import Roots
    from gpuhook.vendors.nvidia.spec.generate_options import Choices

_PREFIXES = {
    "/dev": "nvidia",
    "/dev/nvidia-caps": "nvidia-cap",
    "/dev/nvidia-caps-imex-channels": "channel",
}
_OTHERS = ("nvidia-fs", "nvidia-nvswitch", "nvidia-nvlink")
_CAPABILITIES = frozenset(vocabulary.CAPABILITIES) - {"graphics", "display"}
# A program that manages the driver may make its nodes, and does not use EGL.
_LEFT_OUT = frozenset((hook_names.PARAMS, hook_names.PROFILE))


def describe(where: Roots, choices: Choices) -> Described:
    """Return the spec of all nodes and the driver's files below the roots of `where`.

    Raises GH1519 without a node, and the faults of driver_files.find().
    """
    found = device_nodes(where.dev)
    if not found:
        raise fault("GH1519", directory=os.path.join(where.dev, "dev"))
    choices = replace(
        choices, disabled_hooks=choices.disabled_hooks | (_LEFT_OUT - choices.enabled_hooks)
    )
    node, warnings = _node(where, found, choices)
    # By default, capabilities limit files only, not nodes.
    for_files = replace(choices, capabilities=choices.capabilities or _CAPABILITIES)
    common, missing = driver_edits.common(node, for_files)
    given = driver_edits.limited(node, choices).device_nodes
    whole = gpu_spec.of_parts(choices.kind, [gpu_spec.whole_device(given, choices)], common)
    return Described(whole, (), (*warnings, *_absent(found), *missing))


def device_nodes(dev_root: str) -> tuple[DeviceNode, ...]:
    """Return the character devices of the driver below `dev_root`, by path."""
    found = []
    for directory, prefix in _PREFIXES.items():
        place = os.path.join(dev_root, directory[1:])
        try:
            names = sorted(os.listdir(place))
        except OSError:
            continue
        for name in names:
            if name.startswith(prefix) and not name.startswith(_OTHERS):
                found += _node_at(f"{directory}/{name}", os.path.join(place, name))
    return tuple(found)


def _node_at(path: str, host_path: str) -> list[DeviceNode]:
    try:
        seen = os.lstat(host_path)
    except OSError:
        return []  # removed meanwhile
    if not stat.S_ISCHR(seen.st_mode):
        return []
    return [DeviceNode.of_status(path, host_path, seen)]


def _node(
    where: Roots, devices: tuple[DeviceNode, ...], choices: Choices
) -> tuple[Node, tuple[str, ...]]:
    version = module_version(where.host) or None
    found = driver_files.find(where, version, explicit_libraries=choices.explicit_libraries)
    node = Node(
        driver=Driver(version=found.version),
        device_nodes=devices,
        files=found.files,
        links=found.links,
        library_dirs=found.library_dirs,
        driver_root=where.driver,
        dev_root=where.dev,
        masks_params=driver_nodes.masks_params(where.host),
        fingerprint=fingerprint(where.host, found.libcuda),
    )
    return node, found.warnings


def _absent(found: tuple[DeviceNode, ...]) -> list[str]:
    present = {device.path for device in found}
    return [
        f"{path}: no such device node"
        for path in driver_nodes.CONTROL_NODES
        if path not in present and not path.endswith("-modeset")
    ]
