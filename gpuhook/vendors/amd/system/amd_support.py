# SPDX-License-Identifier: Apache-2.0
"""What a support bundle has of AMD GPUs. Serial numbers are not read, or left out."""

from __future__ import annotations

import re
from typing import Any

from gpuhook.vendors.amd.hot import amd_sysfs
from gpuhook.vendors.amd.inventory import amd_dump, inventory_worker
from gpuhook.vendors.inventory.support_facts import SupportFacts

_KFD, _GPUS = amd_sysfs.TOPOLOGY, amd_sysfs.DRIVER + "/*"
_OF_GPUS = (
    "revision", "numa_node", "vbios_version", "available_compute_partition",
    "available_memory_partition", "mem_info_vram_total", "mem_info_vram_used",
    "power/runtime_status", "enforce_isolation",
)  # fmt: skip
_FILES = (
    "/opt/rocm/.info/version",
    "/etc/modprobe.d/*amdgpu*.conf",
    f"{amd_sysfs.MODULE}/*version",
    f"{_KFD}/generation_id",
    f"{_KFD}/system_properties",
    f"{_KFD}/nodes/*/name",
    f"{_KFD}/nodes/*/properties",
    f"{_KFD}/nodes/*/mem_banks/0/properties",
    f"{_GPUS}/fw_version/*",
    *(f"{_GPUS}/{name}" for name in _OF_GPUS),
)
_MESSAGE = re.compile(r"(?:amdgpu|kfd|\[drm[^\]]*\] (?:amdgpu|initialized|kiq|skip)) ?[ -~]{1,400}",
                      re.IGNORECASE)  # fmt: skip
# "Process python3 pid 4711 thread python3:cs0 pid 4712": the names belong to users.
_PROGRAM = re.compile(
    r"(?:(?<=process )|(?<=thread )).+?(?= pid\b)"
    r"|(?:(?<=process )|(?<=\bname )|(?<=\btask )|(?<=\bcomm: ))\S+",
    re.IGNORECASE,
)


def support_facts() -> SupportFacts:
    """Return the files and the messages of the kernel that a bundle has."""
    return SupportFacts(_FILES, _MESSAGE, lambda text: _PROGRAM.sub("left out", text))


def support_inventory(host_root: str, dev_root: str) -> dict[str, Any] | None:
    """Return the inventory without serial numbers, None without a driver."""
    node = inventory_worker.read(host_root, dev_root)
    if node.driver is None:
        return None
    section = amd_dump.section(node)
    for gpu in section.get("gpus", ()):
        gpu.pop("serial", None)
    return section
