# SPDX-License-Identifier: Apache-2.0
"""AMD's device nodes in a container (usage_interface.py).

/dev/kfd is of all GPUs, a render node of one device. Other drivers have DRM nodes as well: sysfs
has the driver of each. Containers get no files of the driver.
"""

from __future__ import annotations

import os
import re

from gpuhook.vendors.amd.hot import amd_sysfs, amd_words, node_identity
from gpuhook.vendors.amd.hot.amd_words import DRM, KFD, VOCABULARY
from gpuhook.vendors.amd.inventory import kfd_topology
from gpuhook.vendors.known_difference import ACCESS, GROUP, MODE, VARIABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuhook.vendors.known_difference import Difference

NODE_DIRECTORIES = ("/dev", "/dev/dri")
VARIABLES = (
    "AMD_",
    "DOCKER_RESOURCE_",
    "GPU_DEVICE_ORDINAL=",
    "HIP_VISIBLE_DEVICES=",
    "HSA_CU_MASK=",
    "ROCR_VISIBLE_DEVICES=",
)
HAS_FILES = False
NODE_PREFIX = KFD
# AMD Container Toolkit 1.3: its runtime adds a poststop hook, `amd-ctk cdi generate` writes specs.
_RUNTIME, SPEC_INJECTOR = "amd-container-runtime", "amd-ctk-cdi"
TOOLKIT_HOOKS: Mapping[str, str] = {"amd-ctk": _RUNTIME}
HOOK_INJECTOR = ""
SPEC_HOOKS: Mapping[str, str] = {}
CONTROL_NODE = KFD
SPEC_VARIABLES: tuple[str, ...] = ()
HOOKLESS_VARIABLE = HOOKLESS_DIRECTORY = ""  # no spec has hooks
_REASONS = {
    MODE: "AMD's toolkit keeps the mode of the host's node; this container's user can open it",
    ACCESS: "AMD's toolkit also allows to create the node, which runtimes allow for all devices",
    GROUP: "AMD's toolkit adds no group, and root needs none",
}
_VARIABLES = {
    _RUNTIME: "AMD's runtime does not change the request",
    SPEC_INJECTOR: "AMD's CDI specs set no variable",
}
_NODE = re.compile(re.escape(DRM) + r"(renderD|card)([0-9]{1,7})$")


def is_node(path: str, number: tuple[int, int], host_root: str) -> bool:
    """Return whether the character device `path` with this (major, minor) is the driver's.

    A DRM node without a device is a removed GPU's.
    """
    if path == KFD:
        return True
    if not path.startswith(DRM) or number[0] != amd_sysfs.DRM_MAJOR:
        return False
    place = f"{host_root.rstrip('/')}/sys/dev/char/{number[0]}:{number[1]}"
    if os.path.exists(place):
        return amd_sysfs.is_served(host_root, amd_sysfs.device_of(place))
    return amd_sysfs.is_ready(host_root)


def is_name_of_node(path: str) -> bool:
    """Return whether a device node of the driver may have this path: any DRM node may."""
    return amd_words.is_node(path)


def known_difference(by: str, difference: Difference) -> str:
    """Return why a difference of the nodes that AMD's toolkit gives is harmless, else ""."""
    if by not in _VARIABLES:
        return ""
    if difference.what == VARIABLE:
        return _VARIABLES[by] if difference.name == VOCABULARY.devices_env else ""
    return _REASONS.get(difference.what, "")


def is_device_node(path: str, host_root: str) -> bool:
    """Return whether `path` is the render node of a GPU or partition."""
    return bool(_minor(path)) and amd_sysfs.is_served(host_root, _device(path, host_root))


def has_own_number(path: str, number: tuple[int, int]) -> bool:
    """Return whether a node with the name of a DRM node has the number of that name."""
    match = _NODE.match(path)
    return match is None or number == (amd_sysfs.DRM_MAJOR, int(match[2]))


def stale(paths: Iterable[str], host_root: str) -> list[str]:
    """Return those of the nodes `paths` whose GPU is gone, or whose partition is no longer one.

    Another partition mode leaves the nodes of former partitions, without a device in KFD.
    """
    render = [path for path in paths if _minor(path)]
    if not render:
        return []
    topology = kfd_topology.read(host_root)
    current = {node.render_minor for node in topology.nodes}
    is_complete = topology.is_present and not topology.denied
    found = []
    for path in render:
        device = _device(path, host_root)
        is_partition = amd_sysfs.partition_id(device) is not None
        if not device or (is_partition and is_complete and _minor(path) not in current):
            found.append(path)
    return found


def changed(identities: Mapping[str, str], host_root: str) -> list[str]:
    """Return a phrase for each node whose device is not the recorded one, see node_identity.py."""
    own = {path: text for path, text in identities.items() if amd_words.is_gpu_node(path)}
    return node_identity.changes(own, host_root)


def running_driver(host_root: str) -> str | None:
    """Return the version of amdgpu, or the kernel's if the driver is a part of it; None: none."""
    root = host_root.rstrip("/")
    if not amd_sysfs.is_ready(host_root):
        return None
    release = amd_sysfs.line(f"{root}/proc/sys/kernel/osrelease")
    version = amd_sysfs.line(f"{root}{amd_sysfs.MODULE}/version")
    return f"amdgpu {version}" if version else f"amdgpu of Linux {release or '?'}"


def is_driver_mount(target: str) -> bool:  # noqa: ARG001 # there are none
    """Return False: containers get no files of the driver."""
    return False


def driver_version(path: str) -> None:
    """Return None: containers get no files of the driver."""


def _minor(path: str) -> int | None:
    """Return the minor in the path of a render node, None for another path."""
    match = _NODE.match(path)
    return int(match[2]) if match and match[1] == "renderD" else None


def _device(path: str, host_root: str) -> str:
    """Return the device of a render node, "" if it is gone."""
    name = os.path.basename(path)
    return amd_sysfs.device_of(f"{host_root.rstrip('/')}{amd_sysfs.DRM}/{name}")
