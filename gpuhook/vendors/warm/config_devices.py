# SPDX-License-Identifier: Apache-2.0
"""The devices and driver files that a container got, by its config.json.

The wrapper, and an engine that applies CDI, write them into config.json; the ledger has those of
live containers. Nodes in the container's /dev that are not in config.json are ignored: a container
with CAP_MKNOD may make any.
"""

from __future__ import annotations

import os
import stat

from gpuhook.apply.spec import change_record, oci_spec
from gpuhook.host.hot import fastjson
from gpuhook.kernel.bpf import device_filter
from gpuhook.kernel.bpf.device_filter import Rule
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from gpuhook.cdi.hot.container_edits import ContainerEdits, DeviceNode, Mount

_KFD = "/dev/kfd"  # each container with AMD GPUs has it


def by_config(spec: dict[str, Any], recorded: Collection[str] = ()) -> ContainerEdits:
    """Return the device nodes and driver mounts of a config.json, {} if it has none.

    `recorded` are the nodes that the ledger had when the container was created: an engine may write
    the file again without their rules, as `podman update` does.
    """
    edits: ContainerEdits = {}
    rules = [Rule.of_oci(rule) for rule in oci_spec.device_rules(spec) if isinstance(rule, dict)]
    nodes = [node for device in _devices(spec) for node in _node(device, rules, recorded)]
    if nodes:
        edits["deviceNodes"] = nodes
        mounts = _mounts(spec)
        if mounts:
            edits["mounts"] = mounts
    return edits


def _devices(spec: dict[str, Any]) -> list[dict[str, Any]]:
    devices = fastjson.objects(spec, "linux", "devices")
    is_node = node_test([str(device.get("path")) for device in devices])
    return [
        device
        for device in devices
        if is_node(str(device.get("path")))
        and device.get("type") in ("b", "c")
        and _is_number(device.get("major"), 12)
        and _is_number(device.get("minor"), 20)
    ]


def node_test(paths: Collection[str]) -> Callable[[str], bool]:
    """Return the test of a path: whether it is a vendor's node in a container with nodes `paths`.

    DRM nodes are those of many drivers: in a container with /dev/kfd, they are of amdgpu.
    """
    if _KFD not in paths:
        return vocabulary.is_node
    from gpuhook.vendors.amd.hot import amd_words  # most containers have no AMD GPU

    return lambda path: vocabulary.is_node(path) or amd_words.is_node(path)


def _is_number(value: object, bits: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << bits


def _node(device: dict[str, Any], rules: list[Rule], recorded: Collection[str]) -> list[DeviceNode]:
    """Return the node of an OCI device, with the access that the rules allow; [] if they do not.

    After the driver is reloaded, the device may have another major; the same minor identifies
    it, as the host's node of that path may be another device.
    """
    kind, major, minor = device["type"], device["major"], device["minor"]
    access = "".join(
        letter
        for letter in "rwm"
        if device_filter.evaluate(rules, kind, letter, major, minor, default=False)
    )
    if not access and device["path"] in recorded:
        access = "rw"
    if not access.strip("m"):
        return []
    node: DeviceNode = {
        "path": device["path"],
        "type": kind,
        "major": _major_now(device["path"], major, minor),
        "minor": minor,
        "permissions": access,
    }
    for key in ("fileMode", "uid", "gid"):
        if isinstance(device.get(key), int):
            node[key] = device[key]
    return [node]


def _major_now(path: str, major: int, minor: int) -> int:
    try:
        found = os.stat(path)
    except OSError:
        return major
    if stat.S_ISCHR(found.st_mode) and os.minor(found.st_rdev) == minor:
        return os.major(found.st_rdev)
    return major


def _mounts(spec: dict[str, Any]) -> list[Mount]:
    recorded = change_record.mounts(spec)
    found: list[Mount] = []
    mounts = spec.get("mounts")
    for mount in mounts if isinstance(mounts, list) else ():
        if not isinstance(mount, dict) or mount.get("type") != "bind":
            continue
        destination, source = mount.get("destination"), mount.get("source")
        if not isinstance(destination, str) or not isinstance(source, str):
            continue
        if destination in recorded or is_driver_file(destination):
            listed = mount.get("options")
            options = [str(option) for option in listed] if isinstance(listed, list) else []
            found.append({"hostPath": source, "containerPath": destination, "options": options})
    return found


def is_driver_file(path: str) -> bool:
    """Return whether a path in a container has the name of a driver's file; amdgpu has none."""
    return vocabulary.is_driver_file(path)


def with_numbers(edits: ContainerEdits) -> ContainerEdits:
    """Return `edits` with the numbers of its device nodes, so that no host node is read again."""
    kept = edits.copy()
    nodes: list[DeviceNode] = []
    for node in edits.get("deviceNodes") or ():
        device = oci_spec.oci_device(node)
        numbers = {key: device[key] for key in ("type", "major", "minor") if key in device}
        nodes.append({**node, **numbers})  # type: ignore[typeddict-item] # the keys are its own
    if nodes:
        kept["deviceNodes"] = nodes
    return kept


def renewed(edits: ContainerEdits) -> ContainerEdits:
    """Return `edits` with the current majors: a reloaded driver may have others."""
    kept = edits.copy()
    if "deviceNodes" in edits:
        kept["deviceNodes"] = [_renewed(node) for node in edits["deviceNodes"]]
    return kept


def _renewed(node: DeviceNode) -> DeviceNode:
    if not node.get("major"):
        return node
    source = node.get("hostPath") or node["path"]
    return {**node, "major": _major_now(source, node["major"], node["minor"])}


def without(edits: ContainerEdits, nodes: list[str]) -> ContainerEdits:
    """Return `edits` without the device nodes `nodes`."""
    kept = edits.copy()
    if "deviceNodes" in edits:
        kept["deviceNodes"] = [node for node in edits["deviceNodes"] if node["path"] not in nodes]
    return kept


def besides(edits: ContainerEdits, others: ContainerEdits) -> ContainerEdits:
    """Return `edits` without the device nodes and mounts that `others` have as well."""
    kept = without(edits, [node["path"] for node in others.get("deviceNodes") or ()])
    known = {mount["containerPath"] for mount in others.get("mounts") or ()}
    if "mounts" in edits:
        kept["mounts"] = [one for one in edits["mounts"] if one["containerPath"] not in known]
    return kept
