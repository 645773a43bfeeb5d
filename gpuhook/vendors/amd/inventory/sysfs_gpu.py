# SPDX-License-Identifier: Apache-2.0
"""The facts of one GPU in the directory of its PCI device."""

from __future__ import annotations

from typing import Any

from gpuhook.vendors.amd.hot import amd_sysfs
from gpuhook.vendors.amd.inventory.amd_inventory import AmdGpu

_IDS = "/usr/share/libdrm/amdgpu.ids"  # names by device and revision, in the package of libdrm
_UNIQUE_ID_DIGITS = 16


def read(host_root: str, address: str, index: int) -> AmdGpu:
    """Return the GPU at a PCI address without its devices."""
    directory = amd_sysfs.directory_of(host_root, address)

    def line(name: str) -> str | None:
        return amd_sysfs.line(f"{directory}/{name}")

    device_id, revision = _hexadecimal(line("device")), _hexadecimal(line("revision"), 2)
    return AmdGpu(
        index=index,
        pci_address=address,
        unique_id=unique_id(line("unique_id")),
        name=line("product_name") or _listed_name(host_root, device_id, revision),
        device_id=device_id,
        subsystem_id=_subsystem_id(line("subsystem_vendor"), line("subsystem_device")),
        revision=revision,
        serial=line("serial_number"),
        vbios=line("vbios_version"),
        vram_bytes=amd_sysfs.number(f"{directory}/mem_info_vram_total"),
        numa_node=amd_sysfs.number(f"{directory}/numa_node"),  # a GPU without one has -1
        **_modes(directory),
    )


def unique_id(text: str | int | None) -> str | None:
    """Return a unique id as 16 hexadecimal digits; None for 0 and for another text."""
    if isinstance(text, int):
        text = f"{text:x}"
    digits = (text or "").lower().removeprefix("0x").rjust(_UNIQUE_ID_DIGITS, "0")
    is_one = len(digits) == _UNIQUE_ID_DIGITS and _is_hexadecimal(digits) and digits.strip("0")
    return digits if is_one else None


def _modes(directory: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in ("compute", "memory"):
        found[kind + "_mode"] = amd_sysfs.mode(f"{directory}/current_{kind}_partition")
        available = amd_sysfs.modes(f"{directory}/available_{kind}_partition")
        found[kind + "_modes"] = tuple(available)
    return found


def _listed_name(host_root: str, device_id: str | None, revision: str | None) -> str | None:
    """Return the name of a board in libdrm's list, for one whose driver does not know it."""
    try:
        lines = amd_sysfs.text(host_root.rstrip("/") + _IDS).splitlines()
    except OSError:
        return None
    for one in lines:
        fields = [field.strip() for field in one.split(",", 2)]
        if len(fields) == 3 and [field.lower() for field in fields[:2]] == [device_id, revision]:
            return fields[2] or None
    return None


def _subsystem_id(vendor: str | None, device: str | None) -> str | None:
    parts = [_hexadecimal(vendor), _hexadecimal(device)]
    return None if None in parts else ":".join(map(str, parts))


def _hexadecimal(text: str | None, width: int = 4) -> str | None:
    """Return the digits of "0x74a1"."""
    digits = (text or "").lower().removeprefix("0x")
    return digits.zfill(width) if digits and _is_hexadecimal(digits) and len(digits) <= 8 else None


def _is_hexadecimal(text: str) -> bool:
    return all(character in "0123456789abcdef" for character in text)
