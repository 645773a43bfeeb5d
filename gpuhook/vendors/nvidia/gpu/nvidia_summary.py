# SPDX-License-Identifier: Apache-2.0
"""A node's NVIDIA GPUs for `gpuhook setup`, and the device whose container proves the setup."""

from __future__ import annotations

from collections import Counter

from gpuhook.vendors.gpu_summary import GpuSummary, ProofDevice, ProofWay
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, Node

SMI = ProofWay(
    variable=vocabulary.VOCABULARY.devices_env,
    kind=vocabulary.VOCABULARY.default_kind,
    runtime="nvidia",
    program=("nvidia-smi", "-L"),
    pattern=r"\(UUID: ((?:GPU|MIG)-[0-9A-Za-z/-]+)\)",
    libraries=("libnvidia", "libcuda"),
)


def summary(node: Node) -> GpuSummary:
    """Return the GPUs of a node."""
    counts = Counter(gpu.name or "unknown" for gpu in node.gpus)
    driver = node.driver.version or ""
    models = tuple(f"{count} x {name}" for name, count in counts.items())
    names = _device(node.gpus)
    if names is None:
        return GpuSummary(driver, models)
    ends = (one for one in node.files if one.container_path.endswith("/nvidia-smi"))
    smi = next((one.host_path for one in ends), "")
    if not smi:
        return GpuSummary(driver, models, no_device="the driver has no nvidia-smi")
    files = (smi, *([node.driver.nvml] if node.driver.nvml else []))
    return GpuSummary(driver, models, ProofDevice(*names, SMI, files))


def _device(gpus: tuple[Gpu, ...]) -> tuple[str, str] | None:
    """Return name and UUID of the first GPU or MIG instance that a container can get."""
    for gpu in gpus:
        if gpu.lost is None and gpu.mig_mode != "enabled" and gpu.uuid:
            return str(gpu.index), gpu.uuid
        if gpu.lost is None:
            for one in gpu.instances:
                if one.trouble is None:
                    return f"{gpu.index}:{one.index}", one.uuid
    return None
