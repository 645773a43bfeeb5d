# SPDX-License-Identifier: Apache-2.0
"""The driver for containers of a runtime that knows nothing of GPUs: mounts and one variable.

Libraries are bound below <path>/lib64 under every name by which they are opened, programs below
<path>/bin, configuration files where they are looked for. GKE's device plugin mounts its driver at
the same place, /usr/local/nvidia, and leaves it to the image to look there, as CUDA images do:
LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64, and <path>/bin in PATH.

Here a plain image finds the libraries as well: the answer sets that very LD_LIBRARY_PATH. A plugin
can only set a variable whole, so an image that has another one loses it; its pod then says in its
own env what the container needs, which wins over a plugin's. PATH stays the image's: without
an entry for it programs are called as <path>/bin/nvidia-smi.

Firmware and sockets are left out: the kernel loads the one from the host, and no CUDA program needs
the other. Without a hook there are no links for the driver's plugins either where the target is
none of its files.
"""

from __future__ import annotations

from posixpath import basename, join

from gpuhook.device_plugin.allocate.container_allocation import AllocatedMount, Allocation
from gpuhook.vendors.nvidia.driver import hookless_mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import DriverFile, Node

_KINDS = ("library", "plugin", "config")


def driver_mounts(node: Node, path: str) -> Allocation:
    """Return the mounts of the driver's files below `path`, and the variable; host paths as given.

    Empty where the node has no library.
    """
    libraries = join(path, "lib64")
    files = tuple(file for file in node.files if file.kind in _KINDS)
    bindings, _ = hookless_mounts.bindings(files, node.links, libraries)
    bindings += [(file.host_path, _program(file, path)) for file in _programs(node)]
    if not any(file.kind == "library" for file in files):
        return Allocation()
    ordered = sorted(bindings, key=lambda pair: (pair[1].count("/"), pair[1]))
    return Allocation(
        envs={"LD_LIBRARY_PATH": f"{join(path, 'lib')}:{libraries}"},
        mounts=tuple(AllocatedMount(place, source) for source, place in ordered),
    )


def _programs(node: Node) -> list[DriverFile]:
    return [file for file in node.files if file.kind == "binary"]


def _program(file: DriverFile, path: str) -> str:
    return join(path, "bin", basename(file.container_path))
