# SPDX-License-Identifier: Apache-2.0
"""The versions of a GPU's firmware, by the names of AMD's node labeller.

The driver's files have the numbers that the labeller queries; the labeller's feature versions have
no file. A block that the GPU lacks has no file in newer kernels and version 0 in older ones.
Source: drivers/gpu/drm/amd/amdgpu/amdgpu_ucode.c, amdgpu_kms.c.
"""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files

_FILES = {
    "VCE": "vce", "UVD": "uvd", "MC": "mc", "ME": "me", "PFP": "pfp", "CE": "ce", "RLC": "rlc",
    "MEC": "mec", "SMC": "smc", "SDMA0": "sdma",
}  # fmt: skip
_MAX_SIZE = 1 << 16  # sysfs shows a page as the size of a file


def firmware_versions(host_root: str, pci_address: str) -> dict[str, int]:
    """Return the versions of the GPU at a PCI address; one that cannot be read is left out."""
    directory = os.path.join(host_root, "sys/bus/pci/devices", pci_address, "fw_version")
    versions = {}
    for name, file in _FILES.items():
        try:
            text = files.read(os.path.join(directory, f"{file}_fw_version"), _MAX_SIZE)
            versions[name] = int(text, 16)
        except (OSError, ValueError, GpuhookError):
            continue
    return {name: version for name, version in versions.items() if version}
