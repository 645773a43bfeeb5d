# SPDX-License-Identifier: Apache-2.0
"""Facts of GPUs for labels and tables: vGPU, PCI vendor and class, machine, model."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.vendors.nvidia.devices.driver_nodes import pci_directory

MACHINE_FILE = "/sys/class/dmi/id/product_name"
PCI_VENDOR = "10de"
# Node Feature Discovery's label of a node with such a device, as the GPU operator configures it.
PCI_LABEL = f"feature.node.kubernetes.io/pci-{PCI_VENDOR}.present"

# Of the PCI configuration space: PCI Local Bus Specification 3.0, chapter 6.
_STATUS, _HAS_CAPABILITIES = 0x06, 0x10
_FIRST_CAPABILITY = 0x34
_VENDOR_SPECIFIC = 0x09
_SIZE = 256
# Of the vendor-specific capability of a vGPU: a signature, then records of id, length and data.
_SIGNATURE = b"VF"
_SIGNATURE_AT, _RECORDS_AT = 3, 5
_DRIVER_RECORD = 0
_TEXT = 10  # bytes of the host driver's version, and of its branch after it


@dataclass(frozen=True, slots=True)
class Vgpu:
    """A virtual GPU and the driver of its host; None: the host does not report it."""

    host_driver: str | None = None  # "460.16"
    host_branch: str | None = None  # "r460_00"


def vgpu(host_root: str, pci_bus_id: str | None) -> Vgpu | None:
    """Return the host driver of a vGPU, None if the device is a whole GPU.

    Reading the whole configuration space needs CAP_SYS_ADMIN: without it, no GPU looks virtual.
    """
    return parsed_vgpu(_read(host_root, pci_bus_id, "config") or b"")


def parsed_vgpu(config: bytes) -> Vgpu | None:
    """Return the vGPU's host driver in the PCI configuration space, None for a whole GPU."""
    capability = _vendor_specific(config[:_SIZE])
    if capability[_SIGNATURE_AT:_RECORDS_AT] != _SIGNATURE:
        return None
    at = _RECORDS_AT
    while at + 2 <= len(capability):
        number, length = capability[at], capability[at + 1]
        if number == _DRIVER_RECORD:
            return Vgpu(_text(capability, at + 2), _text(capability, at + 2 + _TEXT))
        if length < 2:  # the length includes the two bytes before the data
            break
        at += length
    return Vgpu()


def _vendor_specific(config: bytes) -> bytes:
    """Return the vendor-specific capability, b"" if there is none or the space is incomplete."""
    if len(config) < _SIZE or not config[_STATUS] & _HAS_CAPABILITIES:
        return b""
    at, seen = config[_FIRST_CAPABILITY], set[int]()
    while at and at not in seen and at + 2 < _SIZE:
        seen.add(at)  # a broken chain may be a ring
        if config[at] == _VENDOR_SPECIFIC:
            return config[at : at + config[at + 2]]
        at = config[at + 1]
    return b""


def _text(capability: bytes, at: int) -> str | None:
    text = capability[at : at + _TEXT].partition(b"\0")[0].decode("ascii", "replace").strip()
    return text if text.isprintable() and text else None


def mode(host_root: str, pci_bus_id: str | None) -> str | None:
    """Return "graphics" or "compute" by the class of the PCI device, None for another class."""
    text = (_read(host_root, pci_bus_id, "class") or b"").strip()
    try:
        number = int(text, 16) >> 8
    except ValueError:
        return None
    return {0x0300: "graphics", 0x0302: "compute"}.get(number)


def machine(host_root: str, path: str = MACHINE_FILE) -> str | None:
    """Return the name of the machine from its firmware, None if the file has none."""
    try:
        with open(os.path.join(host_root, path.lstrip("/")), "rb") as stream:
            return stream.read(_SIZE).decode("utf-8", "replace").strip() or None
    except OSError:
        return None


def _read(host_root: str, pci_bus_id: str | None, name: str) -> bytes | None:
    """Return the first bytes of a file of the PCI device."""
    if pci_bus_id is None:
        return None
    try:
        with open(os.path.join(pci_directory(host_root, pci_bus_id), name), "rb") as stream:
            return stream.read(_SIZE)
    except OSError:
        return None
