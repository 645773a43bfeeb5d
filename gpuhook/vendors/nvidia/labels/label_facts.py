# SPDX-License-Identifier: Apache-2.0
"""Reads the facts for labels that the inventory lacks, from the kernel and NVML."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.gpu import features
from gpuhook.vendors.nvidia.gpu.fabric import fabric
from gpuhook.vendors.nvidia.nvml import nvml_inventory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, Node


@dataclass(frozen=True, slots=True)
class LabelFacts:
    """Facts for labels that the inventory lacks. None: not available."""

    machine: str | None = None  # product name of the DMI table
    clique: str | None = None  # "<cluster UUID>.<clique id>" if it is the same for all GPUs
    modes: tuple[str | None, ...] = ()  # of the GPUs, by PCI class: "graphics", "compute"
    is_vgpu: bool = False  # at least one GPU is a vGPU
    vgpu_host_driver_version: str | None = None
    vgpu_host_driver_branch: str | None = None


def facts(node: Node, host_root: str, machine_file: str) -> LabelFacts:
    """Return the facts of this machine's `node`; unavailable ones are None."""
    gpus = [gpu for gpu in node.gpus if gpu.lost is None]
    virtual = [vgpu for gpu in gpus if (vgpu := features.vgpu(host_root, gpu.pci_bus_id))]
    host = virtual[0] if virtual else None
    return LabelFacts(
        machine=features.machine(host_root, machine_file),
        clique=_clique(node, gpus),
        modes=tuple(features.mode(host_root, gpu.pci_bus_id) for gpu in gpus),
        is_vgpu=host is not None,
        vgpu_host_driver_version=host.host_driver if host else None,
        vgpu_host_driver_branch=host.host_branch if host else None,
    )


def _clique(node: Node, gpus: list[Gpu]) -> str | None:
    """Return the NVLink clique of all GPUs, None if they differ."""
    if node.driver.nvml is None or not gpus:
        return None
    try:
        with nvml_inventory.opened(node.driver.nvml, node.driver.module_version):
            cliques = {fabric(gpu.uuid) if gpu.uuid else None for gpu in gpus}
    except GpuhookError:
        return None
    clique = cliques.pop()
    return None if cliques or clique is None else f"{clique.cluster}.{clique.clique}"
