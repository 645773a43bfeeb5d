# SPDX-License-Identifier: Apache-2.0
"""The facts of a Tegra system: its chip, its release, and, by NVML, its GPUs.

NVML came with JetPack 6. Without it there is one GPU with unknown facts.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.hot.host_fingerprint import module_version, tegra_release
from gpuhook.vendors.nvidia.inventory.inventory import Gpu
from gpuhook.vendors.nvidia.warm import nvml_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.discover import Roots

_COMPATIBLE = "proc/device-tree/compatible"
_ORIN = b"nvidia,tegra234"
_INTEGRATED = ("(nvgpu)", "NVIDIA Thor")
# The CUDA version of each release of Jetson Linux, by NVIDIA's JetPack archive.
_CUDA = (
    ("R38", "13.0"),
    ("R36.4", "12.6"),
    ("R36", "12.2"),
    ("R35", "11.4"),
    ("R34", "11.4"),
    ("R32", "10.2"),
)


@dataclass(frozen=True, slots=True)
class Soc:
    """A Tegra system; None and "" are unknown. There is at least one GPU."""

    gpus: tuple[Gpu, ...]
    driver: str = ""
    cuda: str = ""
    is_orin: bool = False


def ask(where: Roots) -> Soc:
    """Return the facts of the system at `where`; never raises: missing facts are unknown."""
    release = tegra_release(where.driver) or tegra_release(where.host)
    driver = module_version(where.host)
    cuda = next((version for name, version in _CUDA if _is_of(release, name)), "")
    gpus: tuple[Gpu, ...] = ()
    with suppress(GpuhookError):
        path = nvml_library.find(
            where.driver, library=where.nvml_library, search_paths=where.library_search_paths
        )
        from gpuhook.vendors.nvidia.nvml import nvml_inventory

        with nvml_inventory.opened(path, driver or None) as answering:
            driver = answering.driver_version() or driver
            cuda = answering.cuda_version() or cuda
            gpus = answering.gpus()
    gpus = gpus or (Gpu(index=0),)
    is_orin = _ORIN in _compatible(where.host) or any("Orin" in (g.name or "") for g in gpus)
    return Soc(gpus, driver, cuda, is_orin)


def is_integrated(gpu: Gpu) -> bool:
    """Return whether `gpu` is that of the chip; one without a name is."""
    return gpu.name is None or any(word in gpu.name for word in _INTEGRATED)


def _is_of(release: str, name: str) -> bool:
    return release == name or release.startswith(name + ".")


def _compatible(host_root: str) -> list[bytes]:
    """Return the names in the device tree with which the board is compatible, "nvidia,tegra234"."""
    try:
        with open(os.path.join(host_root, _COMPATIBLE), "rb") as file:
            return file.read(4096).split(b"\0")
    except OSError:
        return []
