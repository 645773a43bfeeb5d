# SPDX-License-Identifier: Apache-2.0
"""What kind of machine a place is: WSL, a Tegra with its own GPU, or any other.

Only files are looked at, but for a Tegra: whether the GPU on its chip is the only one, NVML tells.
"""

from __future__ import annotations

import os

from gpuhook.vendors.nvidia.hot.driver_root import DriverRoot
from gpuhook.vendors.nvidia.hot.host_fingerprint import TEGRA_RELEASE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.spec.generate_options import ModeRoots

DXG = "/dev/dxg"
DXCORE = "/usr/lib/wsl/lib/libdxcore.so"
_FAMILY = "sys/devices/soc0/family"


def is_wsl(place: ModeRoots) -> bool:
    """Return whether the GPUs are those of Windows: there is WSL's device, or its library."""
    device = os.path.exists(place.roots.dev.rstrip("/") + DXG)
    return device or DriverRoot(place.roots.driver).real(DXCORE) is not None


def is_tegra(place: ModeRoots) -> bool:
    """Return whether the GPU is that of a system on a chip, and no other is beside it.

    Where NVML cannot be asked (it came with JetPack 6), a Tegra has no other.
    """
    if not _is_tegra_system(place):
        return False
    from gpuhook.vendors.nvidia.modes.tegra import soc

    return all(soc.is_integrated(gpu) for gpu in soc.ask(place).gpus)


def _is_tegra_system(place: ModeRoots) -> bool:
    if DriverRoot(place.roots.driver).real(TEGRA_RELEASE) or DriverRoot(place.roots.host).real(
        TEGRA_RELEASE
    ):
        return True
    try:
        with open(os.path.join(place.roots.host, _FAMILY), "rb") as file:
            return file.read(64).lower().startswith(b"tegra")
    except OSError:
        return False
