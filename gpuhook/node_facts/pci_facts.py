# SPDX-License-Identifier: Apache-2.0
"""The devices of a vendor on the PCI bus of a node, and the drivers that have them."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from gpuhook.node_facts.sources import node_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.check import ExaminedNode

PCI = "/sys/bus/pci/devices"
FOR_GUESTS = "vfio-pci"  # the driver of devices for virtual machines
# PCI's class codes: displays, processing accelerators.
_GPUS = ("0x03", "0x12")


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A device on the PCI bus; its bus id is in the kernel's form."""

    bus_id: str
    device_class: str  # "0x030200"
    driver: str  # "nvidia", "nouveau", "vfio-pci", "" if none is bound

    @property
    def is_gpu(self) -> bool:
        """Whether it is a graphics or compute device; others are audio, USB and switches."""
        return self.device_class.startswith(_GPUS)


def pci_devices(node: ExaminedNode, vendor: str) -> tuple[PciDevice, ...]:
    """Return the devices with a vendor's PCI id, such as "0x10de", ordered by bus id."""
    found = []
    for name in node.tree.names(PCI):
        if node_tree.line(node.tree, f"{PCI}/{name}/vendor") != vendor:
            continue
        link = node.tree.status(f"{PCI}/{name}/driver", follow=False)
        driver = posixpath.basename(link.target) if link else ""
        found.append(PciDevice(name, node_tree.line(node.tree, f"{PCI}/{name}/class"), driver))
    return tuple(found)
