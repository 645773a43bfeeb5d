# SPDX-License-Identifier: Apache-2.0
"""The platform of a node: WSL, a Tegra with its own GPU, or any other.

Only files are read, except on a Tegra: NVML reports whether it has other GPUs.
"""

from __future__ import annotations

import os

from gpuhook.vendors.nvidia.hot.extras.driver_root import DriverRoot
from gpuhook.vendors.nvidia.hot.host_fingerprint import TEGRA_RELEASE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.discover import Roots

DXG = "/dev/dxg"
DXCORE = "/usr/lib/wsl/lib/libdxcore.so"
_FAMILY = "sys/devices/soc0/family"


def is_wsl(where: Roots) -> bool:
    """Return whether the GPUs are those of Windows: WSL's device or library exists."""
    device = os.path.exists(where.dev.rstrip("/") + DXG)
    return device or DriverRoot(where.driver).real(DXCORE) is not None


def is_tegra(where: Roots) -> bool:
    """Return whether the GPU of a system on a chip is the only one.

    If NVML cannot be loaded (it came with JetPack 6), a Tegra has no other GPU.
    """
    if not _is_tegra_system(where):
        return False
    from gpuhook.vendors.nvidia.modes.tegra import soc

    return all(soc.is_integrated(gpu) for gpu in soc.ask(where).gpus)


def _is_tegra_system(where: Roots) -> bool:
    if DriverRoot(where.driver).real(TEGRA_RELEASE) or DriverRoot(where.host).real(TEGRA_RELEASE):
        return True
    try:
        with open(os.path.join(where.host, _FAMILY), "rb") as file:
            return file.read(64).lower().startswith(b"tegra")
    except OSError:
        return False
