# SPDX-License-Identifier: Apache-2.0
"""Nodes with AMD GPUs, and their offers, for tests of the device plugin."""

from __future__ import annotations

from dataclasses import replace

from gpuhook.device_plugin.config import config_reader
from gpuhook.device_plugin.offer import resources
from gpuhook.vendors.amd.inventory import amd_dump
from gpuhook.vendors.amd.inventory.amd_inventory import (
    PCIE,
    XGMI,
    AmdDevice,
    AmdDriver,
    AmdGpu,
    AmdLink,
    AmdNode,
)
from gpuhook.vendors.amd.plugin import amd_part
from tests.simulated import amd_profiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.offer.offered_devices import Resource
    from gpuhook.device_plugin.offer.resources import Offer
    from gpuhook.vendors.plugin.vendor_part import PairScores

GPU = "amd.com/gpu"
MI300X = amd_dump.load("mi300x8")
CPX = amd_dump.load("mi300x-cpx")
MIXED_STRATEGY = "flags: {amd: {resourceNamingStrategy: mixed}}\n"
SHARED_EIGHT = "sharing: {timeSlicing: {resources: [{name: amd.com/gpu, replicas: 64}]}}"
# Buses of AMD's fixture topo-mi210-xgmi-pcie, in the order of KFD's nodes: two hives of four.
_MI210 = ("63", "43", "03", "26", "e3", "c3", "83", "a3")


def configuration(text: str = "") -> Configuration:
    reading = config_reader.read(text.encode(), "file" if text else "")
    assert reading.configuration is not None, reading.findings
    return reading.configuration


def offer(node: AmdNode, text: str = "") -> Offer:
    return resources.offered(node, configuration(text))


def only(node: AmdNode, text: str = "") -> Resource:
    """Return the only resource of a node."""
    (resource,) = offer(node, text).resources
    return resource


def links(node: AmdNode) -> PairScores:
    return amd_part.links(node)


def five_and_three() -> AmdNode:
    """Return a node with five MI300X in SPX and three in CPX."""
    modes = ["SPX"] * 5 + ["CPX"] * 3
    return replace(MI300X, gpus=tuple(amd_profiles.mi300x(amd_profiles.BUSES, modes)))


def mi210(*, has_p2p: bool = True) -> AmdNode:
    """Return eight MI210 in two hives, which PCIe connects if KFD lists it (p2p_links)."""
    gpus = []
    for index, bus in enumerate(_MI210):
        hive = range(index // 4 * 4, index // 4 * 4 + 4)
        others = [other for other in range(8) if other != index]
        near = tuple(AmdLink(128 + other, XGMI, 15) for other in others if other in hive)
        far = tuple(AmdLink(128 + other, PCIE, 72) for other in others if other not in hive)
        address = f"0000:{bus}:00.0"
        device = AmdDevice(
            index, address, 0, 128 + index, 1 + index, links=near + (far if has_p2p else ())
        )
        gpus.append(
            AmdGpu(
                index,
                address,
                name="AMD Instinct MI210",
                numa_node=index // 4,
                vram_bytes=64 << 30,
                devices=(device,),
            )
        )
    return AmdNode(AmdDriver(), tuple(gpus))
