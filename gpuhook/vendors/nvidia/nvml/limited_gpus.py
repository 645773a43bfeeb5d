# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a node for memory limits, as NVML describes them."""

from __future__ import annotations

from gpuhook.vendors.nvidia.hot import host_fingerprint
from gpuhook.vendors.nvidia.nvml import nvml_inventory
from gpuhook.vendors.usage.limit_device import LimitDevice


def limit_devices(library: str, host_root: str) -> list[LimitDevice]:
    """Return the GPUs with a UUID. Raises GH1202 to GH1206."""
    with nvml_inventory.opened(library, host_fingerprint.module_version(host_root)) as driver:
        return [
            LimitDevice(
                gpu.uuid,
                gpu.index,
                f"/dev/nvidia{gpu.minor}",
                gpu.memory_bytes,
                parts=tuple(
                    name for one in gpu.instances for name in (one.uuid, f"{gpu.index}:{one.index}")
                ),
                is_divided=gpu.mig_mode == "enabled",
            )
            for gpu in driver.gpus()
            if gpu.uuid
        ]
