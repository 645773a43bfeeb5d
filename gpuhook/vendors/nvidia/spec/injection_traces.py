# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's device nodes and mounts in a container, recognised by names and numbers.

It has what ContainerTraces of usage_interface.py has. For inspection only: what a container gets
comes from the node, never from a name.
"""

from __future__ import annotations

import os
import re

from gpuhook.vendors.nvidia.devices import stale_nodes
from gpuhook.vendors.nvidia.driver import hookless_mounts
from gpuhook.vendors.nvidia.hot import host_fingerprint, vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuhook.vendors.known_difference import Difference

# Directories of its nodes; drivers of other vendors use /dev/dri, too.
NODE_DIRECTORIES = (
    "/dev",
    "/dev/nvidia-caps",
    "/dev/nvidia-caps-imex-channels",
    "/dev/dri",
    "/dev/dri/by-path",
)
VARIABLES = ("NVIDIA_", "GPUHOOK_", "CUDA_VISIBLE_DEVICES=")
HAS_FILES = True
NODE_PREFIX = "/dev/nvidia"
TOOLKIT_HOOKS: Mapping[str, str] = {}  # it has no others than those below
SPEC_INJECTOR = ""
# NVIDIA's legacy hook, and the CDI modes of its toolkit.
HOOK_INJECTOR = "nvidia-legacy"
SPEC_HOOKS: Mapping[str, str] = {"nvidia-ctk": "nvidia-cdi", "nvidia-cdi-hook": "nvidia-cdi"}
CONTROL_NODE = "/dev/nvidiactl"
# Of toolkit 1.20, `cdi generate`, and gpuhook.
SPEC_VARIABLES = (f"{vocabulary.LIBCUDA_DIRECTORY_ENV}=", "NVCT_EMPTY_DEVICE=")
HOOKLESS_VARIABLE, HOOKLESS_DIRECTORY = hookless_mounts.ENV, hookless_mounts.DIRECTORY
_GPU_MAJOR = 195  # of /dev/nvidia0 and so on. Source: Linux, admin-guide/devices.txt
_DRI = "/dev/dri/"
_PROC = "/proc/driver/nvidia/"
_MODULE = "nvidia"

# libcuda.so.560.35.03, and the directory of firmware. A SONAME's number has no point.
_VERSION = re.compile(r"(?:\.so\.|/nvidia/)([0-9]{3,}\.[0-9.]*[0-9])(?:/|$)")


def is_node(path: str, number: tuple[int, int], host_root: str) -> bool:
    """Return whether the character device `path` with this (major, minor) is the driver's."""
    if not path.startswith(_DRI):
        return vocabulary.is_node(path)
    device = f"{host_root.rstrip('/')}/sys/dev/char/{number[0]}:{number[1]}/device/driver"
    return os.path.basename(os.path.realpath(device)) == _MODULE


def is_name_of_node(path: str) -> bool:
    """Return whether a device node of the driver may have this path."""
    return vocabulary.is_node(path)


def known_difference(by: str, difference: Difference) -> str:
    """Return why a difference of NVIDIA's toolkit is harmless, "" if that is unknown."""
    from gpuhook.vendors.nvidia.toolkit import toolkit_differences  # for compare only

    return toolkit_differences.known_difference(by, difference)


def is_device_node(path: str, host_root: str) -> bool:  # noqa: ARG001 # the name is enough
    """Return whether `path` is the node of one GPU or instance."""
    return vocabulary.is_gpu_node(path)


def has_own_number(path: str, number: tuple[int, int]) -> bool:
    """Return whether a node with the name of a GPU node has the numbers of that GPU."""
    name = path.removeprefix("/dev/nvidia")
    return number == (_GPU_MAJOR, int(name)) if name.isdecimal() else True


def stale(paths: Iterable[str], host_root: str) -> list[str]:
    """Return those of the nodes `paths` whose GPU or MIG instance no longer exists."""
    return stale_nodes.of_paths(paths, host_root)


def changed(identities: Mapping[str, str], host_root: str) -> list[str]:  # noqa: ARG001
    """Return nothing: there are no identities."""
    return []


def running_driver(host_root: str) -> str | None:
    """Return the version of the loaded kernel module, None without one."""
    return host_fingerprint.module_version(host_root) or None


def is_driver_mount(target: str) -> bool:
    """Return whether the mount at `target` is a file of the driver, not a node."""
    if target.startswith("/dev/"):
        return False
    return (
        vocabulary.is_driver_file(target)
        or target.startswith(_PROC)
        or driver_version(target) is not None
    )


def driver_version(path: str) -> str | None:
    """Return the driver version in the name of a driver's file, None if it has none."""
    found = _VERSION.search(path)
    return found[1] if found else None
