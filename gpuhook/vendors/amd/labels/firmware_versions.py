# SPDX-License-Identifier: Apache-2.0
"""The versions of a GPU's firmware, by the names of AMD's node labeller.

The driver's files have the numbers that the labeller queries; the labeller's feature versions have
no file. A block that the GPU lacks has no file in newer kernels and version 0 in older ones.
Source: drivers/gpu/drm/amd/amdgpu/amdgpu_ucode.c, amdgpu_kms.c.
"""

from __future__ import annotations

from gpuhook.vendors.amd.hot import amd_sysfs

_FILES = {
    "VCE": "vce", "UVD": "uvd", "MC": "mc", "ME": "me", "PFP": "pfp", "CE": "ce", "RLC": "rlc",
    "MEC": "mec", "SMC": "smc", "SDMA0": "sdma",
}  # fmt: skip


def firmware_versions(host_root: str, pci_address: str) -> dict[str, int]:
    """Return the versions of the GPU at a PCI address; one that cannot be read is left out."""
    directory = amd_sysfs.directory_of(host_root, pci_address) + "/fw_version"
    lines = {name: amd_sysfs.line(f"{directory}/{of}_fw_version") for name, of in _FILES.items()}
    return {name: version for name, line in lines.items() if (version := _number(line))}


def _number(line: str | None) -> int:
    """Return a version, 32 bits in hexadecimal; 0 for another text."""
    try:
        number = int(line or "0", 16)
    except ValueError:
        return 0
    return number if 0 < number < 1 << 32 else 0
