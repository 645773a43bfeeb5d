# SPDX-License-Identifier: Apache-2.0
"""The names by which a configuration may mean a device: index, UUID, PCI bus id, model."""

from __future__ import annotations

from gpuhook.vendors.nvidia.spec.device_selection import bus_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, MigInstance


def key(name: str) -> str:
    """Return `name` in the one form in which names are compared.

    Case does not count, a PCI bus id may be of any length, and a model may be written as the
    label nvidia.com/gpu.product has it, Tesla-T4 for "Tesla T4".
    """
    return bus_id(name.strip()) or "-".join(name.lower().split())


def of_gpu(gpu: Gpu) -> frozenset[str]:
    """Return the keys of all names of `gpu`."""
    names = (str(gpu.index), gpu.uuid, gpu.pci_bus_id, gpu.name)
    return frozenset(key(name) for name in names if name)


def of_instance(gpu: Gpu, instance: MigInstance) -> frozenset[str]:
    """Return the keys of all names of `instance`, those of its GPU among them.

    So a GPU's name means all of its instances.
    """
    own = (f"{gpu.index}:{instance.index}", instance.uuid)
    return of_gpu(gpu) | {key(name) for name in own if name}
