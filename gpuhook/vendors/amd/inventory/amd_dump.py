# SPDX-License-Identifier: Apache-2.0
"""The AMD part of an inventory: the key `amd` of the document, and back.

Omitted: facts that are None, and empty texts and lists. gpuhook/schemas/inventory.json describes
the keys.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from gpuhook.vendors.amd.inventory.amd_inventory import (
    AmdDevice,
    AmdDeviceNode,
    AmdDriver,
    AmdGpu,
    AmdLink,
    AmdNode,
)
from gpuhook.vendors.inventory.inventory_document import OneLine, first_shared

KEY = "amd"
# Of the schema: facts that are used as names and in paths.
AMD_PATTERNS = {
    "pci_address": r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$",
    "id": r"^([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|amdgpu_xcp_[0-9]+)$",
    "unique_id": r"^[0-9a-f]{16}$",
    "device_id": r"^[0-9a-f]{4,8}$",
    "gfx": r"^gfx[0-9]+[0-9a-f]$",
    "compute_mode": r"^[0-9A-Z]{1,8}$",
    "memory_mode": r"^[0-9A-Z]{1,8}$",
}
_TUPLES = ("compute_modes", "memory_modes")
_UNIQUE = ("index", "pci_address", "unique_id")  # facts of GPUs
_UNIQUE_OF_DEVICES = ("index", "id", "render_minor", "card_minor", "kfd_id")


def load(name: str) -> AmdNode:
    """Return the AMD part of a file or of a profile; one without AMD has no driver.

    Raises what inventory_file.load() raises.
    """
    from gpuhook.vendors.inventory import inventory_file

    file = inventory_file.path(name)
    return of_document(inventory_file.load(file), file)


def of_document(document: dict[str, Any], file: str) -> AmdNode:
    """Return the AMD part of a document that fits the schema; `file` names it in GH1502."""
    from gpuhook.vendors.inventory import inventory_file

    section = document.get(KEY, {})
    inventory_file.require(_twice(section), file)
    return from_section(section)


def section(node: AmdNode) -> dict[str, Any]:
    """Return the value of the key `amd`."""
    dumped = {
        "driver": None if node.driver is None else OneLine(_facts(node.driver)),
        "token": node.token,
        "gpus": [_gpu(gpu) for gpu in node.gpus],
        "device_nodes": [_device_node(one) for one in node.device_nodes],
        "warnings": list(node.warnings),
    }
    return {name: value for name, value in dumped.items() if value not in (None, "", [])}


def from_section(dumped: dict[str, Any]) -> AmdNode:
    """Return the node whose section() is `dumped`."""
    return AmdNode(
        driver=AmdDriver(**dumped["driver"]) if "driver" in dumped else None,
        gpus=tuple(map(_read_gpu, dumped.get("gpus", ()))),
        device_nodes=tuple(map(_read_device_node, dumped.get("device_nodes", ()))),
        token=dumped.get("token", ""),
        warnings=tuple(dumped.get("warnings", ())),
    )


def _facts(one: Any) -> dict[str, Any]:
    """Return the facts of a dataclass that are plain values."""
    values = ((field.name, getattr(one, field.name)) for field in fields(one))
    return {name: value for name, value in values if value is not None and value != ()}


def _gpu(gpu: AmdGpu) -> dict[str, Any]:
    dumped = _facts(gpu)
    dumped |= {name: list(dumped[name]) for name in _TUPLES if name in dumped}
    dumped.pop("devices", None)
    # The longest at the end.
    return dumped | ({"devices": [_device(one) for one in gpu.devices]} if gpu.devices else {})


def _read_gpu(dumped: dict[str, Any]) -> AmdGpu:
    lists = {name: tuple(dumped.get(name, ())) for name in _TUPLES}
    devices = tuple(map(_read_device, dumped.get("devices", ())))
    return AmdGpu(**{**dumped, **lists, "devices": devices})


def _device(device: AmdDevice) -> dict[str, Any]:
    dumped = OneLine(_facts(device))
    if device.links:
        dumped["links"] = _dumped_links(device.links)
    return dumped


def _read_device(dumped: dict[str, Any]) -> AmdDevice:
    links = [
        AmdLink(minor, group["type"], group.get("weight"))
        for group in dumped.get("links", ())
        for minor in group["render_minors"]
    ]
    links.sort(key=lambda link: link.render_minor)
    return AmdDevice(**{**dumped, "links": tuple(links)})


def _dumped_links(links: tuple[AmdLink, ...]) -> list[dict[str, Any]]:
    """Return the links in groups of one type and weight."""
    groups: dict[tuple[str, int | None], list[int]] = {}
    for link in links:
        groups.setdefault((link.type, link.weight), []).append(link.render_minor)
    return [
        {"type": kind, **({} if weight is None else {"weight": weight}), "render_minors": minors}
        for (kind, weight), minors in groups.items()
    ]


def _device_node(node: AmdDeviceNode) -> dict[str, Any]:
    owner = {name: number for name, number in (("uid", node.uid), ("gid", node.gid)) if number}
    numbers = {"major": node.major, "minor": node.minor, "mode": f"{node.mode:04o}"}
    return OneLine({"path": node.path, **numbers, **owner})


def _read_device_node(dumped: dict[str, Any]) -> AmdDeviceNode:
    mode = int(dumped.get("mode", "0660"), 8)
    return AmdDeviceNode(**{**dumped, "mode": mode})


def _twice(dumped: dict[str, Any]) -> tuple[str, str] | None:
    """Return the first value of two GPUs or devices that must be unique."""
    gpus = {f"/{KEY}/gpus/{number}": gpu for number, gpu in enumerate(dumped.get("gpus", ()))}
    devices = {
        f"{place}/devices/{number}": device
        for place, gpu in gpus.items()
        for number, device in enumerate(gpu.get("devices", ()))
    }
    wrongs = [first_shared(gpus, key) for key in _UNIQUE]
    wrongs += [first_shared(devices, key) for key in _UNIQUE_OF_DEVICES]
    return next((wrong for wrong in wrongs if wrong is not None), None)
