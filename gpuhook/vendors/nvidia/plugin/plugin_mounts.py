# SPDX-License-Identifier: Apache-2.0
"""The driver for containers of a runtime without GPU support: mounts and one variable.

Libraries are mounted below <path>/lib64 with every name that programs open, programs below
<path>/bin, configuration files at their own paths. GKE's device plugin mounts its driver at
the same path, /usr/local/nvidia, and requires images that search it, as CUDA images do:
LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64, and <path>/bin in PATH.

Here a plain image finds the libraries, too: the answer sets that LD_LIBRARY_PATH. A plugin can only
replace a variable, so the value of an image is lost; the env of the pod takes precedence over
both. PATH is not changed: without an entry in it, call programs as <path>/bin/nvidia-smi.

Firmware and sockets are omitted: the kernel loads firmware from the host, and no CUDA program needs
the sockets. Without a hook, links of the driver's plugins to files outside the driver are omitted,
too.
"""

from __future__ import annotations

from posixpath import basename, join

from gpuhook.vendors.nvidia.driver import hookless_mounts
from gpuhook.vendors.vendor_part import DriverMounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Node

_KINDS = ("library", "plugin", "config")


def plugin_mounts(node: Node, path: str) -> DriverMounts:
    """Return the mounts of the driver's files below `path`, and the variable.

    It is empty if the node has no library.
    """
    libraries = join(path, "lib64")
    files = tuple(file for file in node.files if file.kind in _KINDS)
    bindings, _ = hookless_mounts.bindings(files, node.links, libraries)
    bindings += [
        (file.host_path, join(path, "bin", basename(file.container_path)))
        for file in node.files
        if file.kind == "binary"
    ]
    if not any(file.kind == "library" for file in files):
        return DriverMounts()
    ordered = sorted(bindings, key=lambda pair: (pair[1].count("/"), pair[1]))
    return DriverMounts(tuple(ordered), {"LD_LIBRARY_PATH": f"{join(path, 'lib')}:{libraries}"})
