# SPDX-License-Identifier: Apache-2.0
"""ContainerEdits as lines of a table: what a container gets, one thing a line."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.cdi.hot.container_edits import ContainerEdits, DeviceNode, Hook, Mount

ALL_ACCESS = "rwm"
_MOST = 80  # letters of a hook's arguments


def rows(edits: ContainerEdits) -> Iterator[tuple[str, str]]:
    """Yield (what it is, what it says) of each edit, in CDI's order."""
    for entry in edits.get("env") or ():
        yield "env", entry
    for node in edits.get("deviceNodes") or ():
        yield "node", _node(node)
    for mount in edits.get("mounts") or ():
        yield "mount", _mount(mount)
    for hook in edits.get("hooks") or ():
        yield "hook", _hook(hook)
    for gid in edits.get("additionalGids") or ():
        yield "group", str(gid)
    for key, value in (edits.get("intelRdt") or {}).items():
        yield "rdt", f"{key}={value}"
    for device in edits.get("netDevices") or ():
        yield "network", f"{device.get('hostInterfaceName')} -> {device.get('name')}"


def _node(node: DeviceNode) -> str:
    source = node.get("hostPath")
    place = f"{source} -> {node['path']}" if source and source != node["path"] else node["path"]
    number = f" {node['major']}:{node.get('minor', 0)}" if node.get("major") else ""
    return f"{place}{number} {node.get('permissions') or ALL_ACCESS}"


def _mount(mount: Mount) -> str:
    source, place = mount["hostPath"], mount["containerPath"]
    where = place if source == place else f"{source} -> {place}"
    return " ".join([where, ",".join(mount.get("options") or ())]).rstrip()


def _hook(hook: Hook) -> str:
    """Return the hook, of many arguments the first ones: ours names each library of the driver."""
    arguments = (hook.get("args") or ())[1:]
    shown: list[str] = []
    length = 0
    for argument in arguments:
        length += len(argument) + 1
        if length > _MOST:
            rest = len(arguments) - len(shown)
            shown.append(f"... and {rest} argument{'s' * (rest != 1)} more (-o json has all)")
            break
        shown.append(argument)
    return " ".join([hook["hookName"], hook["path"], *shown])
