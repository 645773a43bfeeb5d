# SPDX-License-Identifier: Apache-2.0
"""Device nodes of GPUs and MIG instances that the node does not have any more, told by /proc alone.

A container keeps the nodes that it was given: those of a GPU that was taken away, or of an instance
that was destroyed, open nothing, or what has their number next.
"""

from __future__ import annotations

import os

from gpuhook.vendors.nvidia.devices import driver_nodes, mig_capabilities

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_GPU, _CAPABILITY = "/dev/nvidia", "/dev/nvidia-caps/nvidia-cap"


def of_paths(paths: Iterable[str], host_root: str) -> list[str]:
    """Return those of the device nodes `paths` whose GPU or instance is gone, in their order.

    Nothing is gone of what /proc tells nothing: other nodes, or a host without a loaded driver.
    """
    gpus = driver_nodes.proc_gpus(host_root)
    minors = {gpu.minor for gpu in gpus}
    has_gpus = os.path.isdir(os.path.join(host_root, "proc/driver/nvidia/gpus"))
    is_told = has_gpus and None not in minors
    known = {f"{_GPU}{minor}" for minor in minors}
    instances = _instances(host_root)
    found = []
    for path in paths:
        is_gpu = path[len(_GPU) :].isdigit() and path.startswith(_GPU)
        if (is_gpu and is_told and path not in known) or instances.get(path) is False:
            found.append(path)
    return found


def _instances(host_root: str) -> dict[str, bool]:
    """Return the nodes of all instances that there could be, and whether there is one.

    mig-minors has the numbers of all; the directories of capabilities have what was made.
    """
    root = host_root.rstrip("/")
    try:
        with open(root + mig_capabilities.MINORS, encoding="utf-8", errors="replace") as file:
            minors = mig_capabilities.parse_minors(file.read())
    except OSError:
        return {}
    return {
        f"{_CAPABILITY}{minor}": os.path.isdir(os.path.dirname(root + mig_capabilities.file(name)))
        for name, minor in minors.items()
        if "/gi" in name
    }
