# SPDX-License-Identifier: Apache-2.0
"""What the NVML stub reports of an idle GPU and its links, in addition to the inventory.

The lines are those of nvml_stub_watch.c.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, Node

_SAME_GPU, _SAME_CPU, _OTHER_CPU = 0, 40, 50
_FIRST_WITH_RECOVERY = 565
# An HGX board with eight H100: 18 links of each GPU to four switches.
_SWITCHES = {"00000000:05:00.0": 4, "00000000:06:00.0": 4, "00000000:07:00.0": 5}
_SWITCHES["00000000:08:00.0"] = 5
_DIRECT_LINKS = 4  # of each pair on an HGX board with four A100
_FABRIC_COMPLETED = 3


def lines(node: Node, gpu: Gpu) -> list[str]:
    """Return the lines of `gpu`; none for a lost one, which answers no question."""
    if gpu.lost is not None:
        return []
    reported = []
    if int((node.driver.version or "0").partition(".")[0]) >= _FIRST_WITH_RECOVERY:
        reported.append("recovery 0")
    reported.append("levels " + " ".join(str(_level(gpu, other)) for other in node.gpus))
    return reported + _nvlinks(node, gpu)


def _level(gpu: Gpu, other: Gpu) -> int:
    if gpu is other:
        return _SAME_GPU
    return _SAME_CPU if gpu.numa_node == other.numa_node else _OTHER_CPU


def _nvlinks(node: Node, gpu: Gpu) -> list[str]:
    name, count = gpu.name or "", len(node.gpus)
    if name.endswith("H100 80GB HBM3") and count == 8:
        switches = [f"nvlink switch {bus} {number}" for bus, number in _SWITCHES.items()]
        return [*switches, f"fabric {'0' * 32} {_FABRIC_COMPLETED} 0"]
    if "A100-SXM4" in name and count == 4:
        others = [other.pci_bus_id for other in node.gpus if other is not gpu]
        return [f"nvlink gpu {bus} {_DIRECT_LINKS}" for bus in others]
    return []
