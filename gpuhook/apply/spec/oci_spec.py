# SPDX-License-Identifier: Apache-2.0
"""ContainerEdits applied to an OCI runtime spec, in place, each item once.

Everything else in the spec remains unchanged and in its place. The semantics are those of the CDI
library: a device replaces the one of the same path, a mount the one of the same destination, a
variable the one of the same name. Source: CDI SPEC.md; OCI runtime-spec config.md and
config-linux.md.
"""

from __future__ import annotations

import os
import stat
from os.path import normpath

from gpuhook.errors import fault
from gpuhook.host.hot import fastjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.cdi.hot.container_edits import ContainerEdits, DeviceNode, Hook, Mount

ID_MAPPED = frozenset(("idmap", "ridmap"))  # options of a mount
HOOK_MARK = "GPUHOOK_HOOK="  # a variable of the hooks that the wrapper adds
_HOOK_ENV = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
BIND_NODE_OPTIONS = ["bind", "rprivate", "nosuid", "noexec"]


def device_paths(spec: dict[str, Any]) -> list[str]:
    """Return the paths of the spec's device nodes."""
    return [str(device.get("path")) for device in fastjson.objects(spec, "linux", "devices")]


def device_rules(spec: dict[str, Any]) -> list[Any]:
    """Return the device rules of the spec's resources."""
    return fastjson.array(spec, "linux", "resources", "devices")


def groups(spec: dict[str, Any]) -> list[Any]:
    """Return the additional groups of the container's process."""
    return fastjson.array(spec, "process", "user", "additionalGids")


def owner(spec: dict[str, Any]) -> tuple[int, int]:
    """Return user and group of the container's process, (0, 0) if the spec names none."""
    process = spec.get("process")
    user = process.get("user") if isinstance(process, dict) else None
    ids = [user.get(key) if isinstance(user, dict) else 0 for key in ("uid", "gid")]
    uid, gid = (value if isinstance(value, int) else 0 for value in ids)
    return uid, gid


def apply(spec: dict[str, Any], edits: ContainerEdits) -> None:
    """Apply `edits` to `spec`. Raises GH1302 for a device node that the host lacks."""
    for entry in edits.get("env") or ():
        set_variable(spec, entry)
    bound = _add_devices(spec, edits.get("deviceNodes") or [])
    _add_mounts(spec, bound + (edits.get("mounts") or []))
    for hook in edits.get("hooks") or ():
        add_hook(spec, hook)
    _add_gids(spec, edits.get("additionalGids") or [])
    if edits.get("intelRdt"):
        section(spec, "linux")["intelRdt"] = edits["intelRdt"]
    for device in edits.get("netDevices") or ():
        facts = dict(device)
        section(section(spec, "linux"), "netDevices")[str(facts.pop("hostInterfaceName"))] = facts


def section(parent: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the object `key` of `parent`, made if absent or null; GH1303 for another value."""
    value = parent.get(key)
    if value is None:
        value = parent[key] = {}
    if not isinstance(value, dict):
        raise fault("GH1303", key=key, kind="an object")
    return value


def items(parent: dict[str, Any], key: str) -> list[Any]:
    """Return the array `key` of `parent`, made if absent or null; GH1303 for another value."""
    value = parent.get(key)
    if value is None:
        value = parent[key] = []
    if not isinstance(value, list):
        raise fault("GH1303", key=key, kind="an array")
    return value


def set_variable(spec: dict[str, Any], entry: str) -> None:
    """Set a variable of the process ("NAME=value"): replaced in its place, else appended."""
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
    """Return whether the container has its own user namespace."""
    return any(one.get("type") == "user" for one in fastjson.objects(spec, "linux", "namespaces"))


def _add_devices(spec: dict[str, Any], nodes: list[DeviceNode]) -> list[Mount]:
    """Add device nodes and their cgroup rules; returns the mounts of those that must be bound."""
    if not nodes:
        return []
    linux = section(spec, "linux")
    devices = items(linux, "devices")
    paths = {node["path"] for node in nodes}
    devices[:] = [d for d in devices if not (isinstance(d, dict) and d.get("path") in paths)]
    in_user_namespace = user_namespace(spec)
    user = section(spec, "process").get("user")
    bound: list[Mount] = []
    added: dict[str, dict[str, Any]] = {}
    for node in nodes:
        path, source = node["path"], node.get("hostPath") or node["path"]
        device = oci_device(node)
        _own(device, node, user)
        added.pop(path, None)
        if source != path and in_user_namespace:
            # In a user namespace, no node can be made, and runtimes bind the host's node of
            # the *same* path: with another dev root, that is another file, or none.
            options = list(BIND_NODE_OPTIONS)
            bound.append({"hostPath": source, "containerPath": path, "options": options})
        else:
            added[path] = device
        if device["type"] in "bc":
            _allow(linux, device, node.get("permissions") or "rwm")
    devices.extend(added.values())
    return bound


def _own(device: dict[str, Any], node: DeviceNode, user: object) -> None:
    """Set the owner of a device: the spec's, else the process's own if it is not root."""
    owner = user if isinstance(user, dict) else {}
    for key in ("uid", "gid"):
        value = node.get(key, owner.get(key) or None)
        if value is not None:
            device[key] = value


def oci_device(node: DeviceNode) -> dict[str, Any]:
    """Return the OCI device of a node: values that CDI leaves open are read from the host's node.

    Raises GH1302 if the host has no such node.
    """
    path, source = node["path"], node.get("hostPath") or node["path"]
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


def _add_mounts(spec: dict[str, Any], added: list[Mount]) -> None:
    """Add mounts after those of the spec, each in place of the one of the same destination.

    A mount comes before those below it, which it would hide, and after those above it.
    """
    if not added:
        return
    mounts = items(spec, "mounts")
    entries: dict[str, dict[str, Any]] = {}
    for mount in added:
        destination = mount["containerPath"]
        entry: dict[str, Any] = {"destination": destination, "source": mount["hostPath"]}
        entry["type"] = mount.get("type") or "bind"
        options = mount.get("options")
        if options:
            entry["options"] = options
            if not ID_MAPPED.isdisjoint(options):
                _map_ids(spec, entry)
        entries[normpath(destination)] = entry
    mounts[:] = [mount for mount in mounts if _destination(mount) not in entries]
    above = _parents([_destination(mount) or "" for mount in mounts] + list(entries))
    for destination, entry in entries.items():
        at = _position(destination, mounts) if destination in above else len(mounts)
        mounts.insert(at, entry)


def _position(destination: str, mounts: list[Any]) -> int:
    """Return where to insert a mount: before the first one below it, else at the end.

    Mounts that a later mount above `destination` hides do not count: that mount would hide the new
    one, too.
    """
    at = len(mounts)
    for index in reversed(range(len(mounts))):
        place = _destination(mounts[index])
        if place and f"{destination}/".startswith(f"{place.rstrip('/')}/"):
            break
        if place and place.startswith(f"{destination}/"):
            at = index
    return at


def _parents(destinations: list[str]) -> set[str]:
    """Return the destinations that have another one of them below."""
    ordered = sorted(destination + "/" for destination in destinations)
    pairs = zip(ordered, ordered[1:])  # if anything is below a destination, the next one is
    return {above[:-1] for above, below in pairs if below.startswith(above)}


def _map_ids(spec: dict[str, Any], entry: dict[str, Any]) -> None:
    """Give a mount with such an option the mappings of the container's user namespace.

    Without a user namespace the option is removed. A container that joins a namespace has no
    mappings in its spec: the runtime maps by that namespace.
    """
    if not user_namespace(spec):
        entry["options"] = [option for option in entry["options"] if option not in ID_MAPPED]
        return
    mappings = {key: spec["linux"].get(key) for key in ("uidMappings", "gidMappings")}
    if all(mappings.values()):
        entry.update(mappings)


def _destination(mount: object) -> str | None:
    destination = mount.get("destination") if isinstance(mount, dict) else None
    return normpath(destination) if isinstance(destination, str) else None


def add_hook(spec: dict[str, Any], hook: Hook) -> None:
    """Add a CDI hook under its stage, unless the same hook is there.

    A createContainer hook without variables gets some: it runs on the host's side, and runc would
    give it the image's, with LD_PRELOAD (CVE-2025-23266). Specs of older tools have such hooks.
    """
    entry = {key: value for key, value in hook.items() if key != "hookName"}
    stage = items(section(spec, "hooks"), hook["hookName"])
    if hook["hookName"] == "createContainer" and not entry.get("env"):
        bare, entry = entry, {**entry, "env": list(_HOOK_ENV)}
        stage[:] = [entry if held == bare else held for held in stage]  # that of the engine
    if entry not in stage:
        stage.append(entry)


def _add_gids(spec: dict[str, Any], gids: list[int]) -> None:
    wanted = [gid for gid in gids if gid]
    if not wanted:
        return
    held = items(section(section(spec, "process"), "user"), "additionalGids")
    held.extend(gid for gid in wanted if gid not in held)
