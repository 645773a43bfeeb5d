# SPDX-License-Identifier: Apache-2.0
"""Device nodes as ContainerEdits: their paths, modes and groups in the container."""

from __future__ import annotations

from gpuhook.vendors.nvidia.devices import drm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.cdi.hot.container_edits import DeviceNode as DeviceNodeEdit
    from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode

_WORLD = 0o006
_EVERYBODY = 0o666


def node_edits(nodes: list[DeviceNode], *, additional_gids: bool = True) -> ContainerEdits:
    """Return the edits that give a container `nodes`, and the groups that it needs to open them.

    A node that everybody may open needs no group, and its spec no version newer than 0.5.0. So the
    nodes of /dev/dri, which the host restricts to the groups video and render, get the driver's own
    mode: everybody in the container may open them. Without `additional_gids` no group is added, and
    every node has the host's mode.
    """
    found: ContainerEdits = {"deviceNodes": []}
    gids = []
    for node in sorted(nodes, key=lambda node: _numeric_order(node.path)):
        entry: DeviceNodeEdit = {"path": node.path}
        if node.host_path != node.path:
            entry["hostPath"] = node.host_path
        is_graphics = node.path.startswith(drm.DIRECTORY)
        mode = node.mode | _EVERYBODY if is_graphics and additional_gids else node.mode
        entry["fileMode"] = mode
        entry["permissions"] = "rw"
        if node.gid:
            entry["gid"] = node.gid
            if additional_gids and mode & _WORLD != _WORLD and node.gid not in gids:
                gids.append(node.gid)
        found["deviceNodes"].append(entry)
    if gids:
        found["additionalGids"] = gids
    return found


def _numeric_order(path: str) -> tuple[str, int]:
    """Return the sort key of a device node: /dev/nvidia2 comes before /dev/nvidia10."""
    stem = path.rstrip("0123456789")
    return stem, int(path[len(stem) :] or -1)
