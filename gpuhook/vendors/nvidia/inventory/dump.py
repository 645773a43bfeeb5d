# SPDX-License-Identifier: Apache-2.0
"""A node as a plain dict, for `gpuhook inventory -o yaml`, and back.

'unknown' is a fact that the node did not report. Omitted: optional facts that are None,
empty tuples, and a host path that equals the container's. gpuhook/schemas/inventory.json describes
the keys.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from gpuhook.vendors.inventory.inventory_document import SCHEMA
from gpuhook.vendors.nvidia.inventory.inventory import (
    DeviceNode,
    Driver,
    DriverFile,
    Gpu,
    Link,
    MigInstance,
    Node,
    fact_rules,
)

UNKNOWN = "unknown"


def as_dict(node: Node) -> dict[str, Any]:
    """Return the dump of `node`, made of dicts, lists, strings, numbers and booleans only."""
    return {
        "schema": SCHEMA,
        "driver": _dumped(node.driver),
        "driver_root": node.driver_root,
        "dev_root": node.dev_root,
        "fingerprint": node.fingerprint,
        "masks_params": node.masks_params,
        "majors": dict(sorted(node.majors.items())),
        "gpus": [_gpu(gpu) for gpu in node.gpus],
        "device_nodes": [_device_node(device) for device in node.device_nodes],
        "library_dirs": list(node.library_dirs),
        "links": [{"path": link.path, "target": link.target} for link in node.links],
        "files": [_file(file) for file in node.files],
        "warnings": list(node.warnings),
    }


def from_dict(dump: dict[str, Any]) -> Node:
    """Return the node of a dump that fits the schema; one without our part has no driver."""
    if not is_in(dump):
        return Node(driver=Driver())
    return Node(
        driver=Driver(**_facts(dump["driver"])),
        gpus=tuple(_read_gpu(gpu) for gpu in dump["gpus"]),
        device_nodes=tuple(_read_device_node(device) for device in dump["device_nodes"]),
        files=tuple(_read_file(file) for file in dump["files"]),
        links=tuple(Link(**link) for link in dump["links"]),
        library_dirs=tuple(dump["library_dirs"]),
        majors=dict(dump["majors"]),
        driver_root=dump.get("driver_root", "/"),
        dev_root=dump.get("dev_root", "/"),
        masks_params=dump.get("masks_params", False),
        fingerprint=dump.get("fingerprint", ""),
        warnings=tuple(dump.get("warnings", ())),
    )


def is_in(document: dict[str, Any]) -> bool:
    """Return whether a document of an inventory has NVIDIA's part."""
    return "driver" in document


def _dumped(facts: Driver | Gpu | MigInstance) -> dict[str, Any]:
    rules = fact_rules(type(facts))
    found = {}
    for name in (one.name for one in fields(facts)):
        value = getattr(facts, name)
        if value == () or (value is None and rules[name].is_optional):
            continue
        found[name] = UNKNOWN if value is None else value
    return found


def _facts(dumped: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value == UNKNOWN else value for name, value in dumped.items()}


def _gpu(gpu: Gpu) -> dict[str, Any]:
    found = _dumped(gpu)
    lists = {"drm": list(gpu.drm), "instances": [_dumped(one) for one in gpu.instances]}
    for name in lists.keys() & found.keys():
        del found[name]
    # Lists are last in a dump, the longest of them at the end.
    return found | {name: one for name, one in lists.items() if one}


def _read_gpu(dumped: dict[str, Any]) -> Gpu:
    instances = dumped.get("instances", ())
    facts = _facts(dumped)
    facts["instances"] = tuple(MigInstance(**_facts(instance)) for instance in instances)
    facts["drm"] = tuple(dumped.get("drm", ()))
    return Gpu(**facts)


def _device_node(device: DeviceNode) -> dict[str, Any]:
    dumped: dict[str, Any] = {"path": device.path}
    if device.host_path != device.path:
        dumped["host_path"] = device.host_path
    dumped |= {"major": device.major, "minor": device.minor, "mode": f"{device.mode:04o}"}
    dumped |= {
        name: number for name, number in (("uid", device.uid), ("gid", device.gid)) if number
    }
    return dumped


def _read_device_node(dumped: dict[str, Any]) -> DeviceNode:
    whole = _with_host_path(dumped, "path")
    if "mode" in whole:
        whole["mode"] = int(whole["mode"], 8)
    return DeviceNode(**whole)


def _file(file: DriverFile) -> dict[str, Any]:
    dumped: dict[str, Any] = {"kind": file.kind, "container_path": file.container_path}
    if file.soname is not None:
        dumped["soname"] = file.soname
    if file.host_path != file.container_path:
        dumped["host_path"] = file.host_path
    if file.capabilities:
        dumped["capabilities"] = list(file.capabilities)
    return dumped


def _read_file(dumped: dict[str, Any]) -> DriverFile:
    whole = _with_host_path(dumped, "container_path")
    whole["capabilities"] = tuple(dumped.get("capabilities", ()))
    return DriverFile(**whole)


def _with_host_path(dumped: dict[str, Any], same_as: str) -> dict[str, Any]:
    return {"host_path": dumped[same_as], **dumped}
