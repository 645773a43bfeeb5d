# SPDX-License-Identifier: Apache-2.0
"""ContainerEdits applied to an OCI runtime spec, in place, each item once.

HOT. Everything that the spec holds besides stays as it is and where it is. The semantics are
those of the CDI library: a device replaces the one of the same path, a mount the one of the same
destination, a variable the one of the same name. Source: CDI SPEC.md; OCI runtime-spec config.md
and config-linux.md.
"""

from __future__ import annotations

import os
import stat
from posixpath import normpath

from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.cdi.edits import ContainerEdits, DeviceNode, Hook, Mount

_BIND_NODE_OPTIONS = ["bind", "rprivate", "nosuid", "noexec"]


def apply(spec: dict[str, Any], edits: ContainerEdits) -> None:
    """Apply `edits` to `spec`. Raises GH1302 for a device node that the host lacks."""
    for entry in edits.get("env") or ():
        set_variable(spec, entry)
    for node in edits.get("deviceNodes") or ():
        _add_device(spec, node)
    for mount in edits.get("mounts") or ():
        _add_mount(spec, mount)
    for hook in edits.get("hooks") or ():
        add_hook(spec, hook)
    _add_gids(spec, edits.get("additionalGids") or [])
    if edits.get("intelRdt"):
        section(spec, "linux")["intelRdt"] = edits["intelRdt"]
    for device in edits.get("netDevices") or ():
        facts = dict(device)
        section(section(spec, "linux"), "netDevices")[str(facts.pop("hostInterfaceName"))] = facts


def section(parent: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the object `key` of `parent`, made if it is absent or null; GH1303 if it is none."""
    value = parent.get(key)
    if value is None:
        value = parent[key] = {}
    if not isinstance(value, dict):
        raise fault("GH1303", key=key, kind="an object")
    return value


def items(parent: dict[str, Any], key: str) -> list[Any]:
    """Return the array `key` of `parent`, made if it is absent or null; GH1303 if it is none."""
    value = parent.get(key)
    if value is None:
        value = parent[key] = []
    if not isinstance(value, list):
        raise fault("GH1303", key=key, kind="an array")
    return value


def set_variable(spec: dict[str, Any], entry: str) -> None:
    """Set a variable of the process ("NAME=value"): replaced where it is, else appended."""
    prefix = entry.partition("=")[0] + "="
    env = items(section(spec, "process"), "env")
    held = [i for i, old in enumerate(env) if isinstance(old, str) and old.startswith(prefix)]
    for i in reversed(held[1:]):
        del env[i]
    if held:
        env[held[0]] = entry
    else:
        env.append(entry)


def user_namespace(spec: dict[str, Any]) -> bool:
    """Return whether the container has a user namespace of its own."""
    linux = spec.get("linux")
    namespaces = linux.get("namespaces") if isinstance(linux, dict) else None
    return any(isinstance(n, dict) and n.get("type") == "user" for n in namespaces or ())


def _add_device(spec: dict[str, Any], node: DeviceNode) -> None:
    path = node["path"]
    source = node.get("hostPath") or path
    device = _stated(node, path, source)
    user = section(spec, "process").get("user")
    for key in ("uid", "gid"):
        if key in node:
            device[key] = node[key]
        elif isinstance(user, dict) and user.get(key):
            device[key] = user[key]
    linux = section(spec, "linux")
    devices = items(linux, "devices")
    devices[:] = [old for old in devices if not _names(old, "path", path)]
    if source != path and user_namespace(spec):
        # In a user namespace no node can be made, and runtimes then bind the host's node of the
        # *same* path: with another dev root that is another file, or none.
        mount: Mount = {"hostPath": source, "containerPath": path, "options": _BIND_NODE_OPTIONS}
        _add_mount(spec, mount)
    else:
        devices.append(device)
    if device["type"] in "bc":
        _allow(linux, device, node.get("permissions") or "rwm")


def _stated(node: DeviceNode, path: str, source: str) -> dict[str, Any]:
    """Return the OCI device of a node: what CDI leaves open is read from the host's node."""
    device: dict[str, Any] = {"path": path, "type": node.get("type") or ""}
    if not device["type"] or (device["type"] != "p" and not node.get("major")):
        try:
            found = os.stat(source)
        except OSError as error:
            raise fault("GH1302", node=source, reason=error.strerror or error) from error
        kind = {stat.S_IFCHR: "c", stat.S_IFBLK: "b", stat.S_IFIFO: "p"}.get(
            stat.S_IFMT(found.st_mode)
        )
        if kind is None or device["type"] not in ("", kind):
            raise fault("GH1302", node=source, reason="it is not a device node of that type")
        device["type"] = kind
        if kind != "p":
            device["major"], device["minor"] = os.major(found.st_rdev), os.minor(found.st_rdev)
    else:
        device["major"], device["minor"] = node.get("major", 0), node.get("minor", 0)
    if "fileMode" in node:
        device["fileMode"] = node["fileMode"]
    return device


def _allow(linux: dict[str, Any], device: dict[str, Any], access: str) -> None:
    rule = {
        "allow": True,
        "type": device["type"],
        "major": device["major"],
        "minor": device["minor"],
        "access": access,
    }
    rules = items(section(linux, "resources"), "devices")
    if rule not in rules:
        rules.append(rule)


def _add_mount(spec: dict[str, Any], mount: Mount) -> None:
    destination = mount["containerPath"]
    entry: dict[str, Any] = {"destination": destination, "source": mount["hostPath"]}
    entry["type"] = mount.get("type") or "bind"
    if mount.get("options"):
        entry["options"] = mount["options"]
    mounts = items(spec, "mounts")
    clean = normpath(destination)
    mounts[:] = [
        old
        for old in mounts
        if not (
            isinstance(old, dict)
            and isinstance(old.get("destination"), str)
            and normpath(old["destination"]) == clean
        )
    ]
    mounts.append(entry)


def add_hook(spec: dict[str, Any], hook: Hook) -> None:
    """Add a CDI hook under its stage, unless the very same one is there."""
    entry = {key: value for key, value in hook.items() if key != "hookName"}
    stage = items(section(spec, "hooks"), hook["hookName"])
    if entry not in stage:
        stage.append(entry)


def _add_gids(spec: dict[str, Any], gids: list[int]) -> None:
    wanted = [gid for gid in gids if gid]
    if not wanted:
        return
    held = items(section(section(spec, "process"), "user"), "additionalGids")
    held.extend(gid for gid in wanted if gid not in held)


def _names(old: object, key: str, value: str) -> bool:
    return isinstance(old, dict) and old.get(key) == value
