# SPDX-License-Identifier: Apache-2.0
"""The distance of a node's GPUs from each other: their PCIe paths and NVLinks.

It is read once: links do not change while a node runs. A GPU that is lost only loses its own pairs.
Source: nvml.h, nvmlGpuTopologyLevel_t and "NvLink Methods".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pynvml

from gpuhook.vendors.nvidia.nvml.nvml_device import answered, ask_device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.vendors.nvidia.inventory.inventory import Gpu

NVLINK_SCORE = 100
_MOST_LINKS = 36  # NVML_NVLINK_MAX_LINKS of the newest nvml.h
_TO_GPU, _TO_SWITCH = 0, 2  # nvmlIntNvLinkDeviceType_t

# Score and name of the connection of two GPUs, by nvmlGpuTopologyLevel_t.
_ANCESTORS = {
    0: (60, "on the same board"),
    10: (50, "through one PCIe switch"),
    20: (40, "through several PCIe switches"),
    30: (30, "through a PCIe host bridge"),
    40: (20, "through the same CPU"),
    50: (10, "through different CPUs"),
}


@dataclass(frozen=True, slots=True)
class Pair:
    """The connection of two GPUs: the topology level (None: unknown) and the number of NVLinks."""

    level: int | None
    nvlinks: int = 0

    @property
    def score(self) -> int:
        """10 (different CPUs) to 60 (same board), and 100 for each NVLink."""
        near = _ANCESTORS.get(self.level, (0, ""))[0] if self.level is not None else 0
        return near + NVLINK_SCORE * self.nvlinks

    def __str__(self) -> str:
        """Return "18 NVLinks, through the same CPU"."""
        parts = []
        if self.nvlinks:
            parts.append(f"{self.nvlinks} NVLink{'s' if self.nvlinks > 1 else ''}")
        if self.level in _ANCESTORS:
            parts.append(_ANCESTORS[self.level][1])
        return ", ".join(parts) or "no known way"


_NOTHING = Pair(None)


@dataclass(frozen=True, slots=True)
class Topology:
    """The pairs of GPUs by their UUIDs, both in order. An empty one knows no pair."""

    pairs: dict[tuple[str, str], Pair] = field(default_factory=dict)

    def pair(self, one: str, other: str) -> Pair:
        """Return the connection of two GPUs; empty for the same, a lost or an unknown GPU."""
        return self.pairs.get((min(one, other), max(one, other)), _NOTHING)

    def score(self, one: str, other: str) -> int:
        """Return how near the GPUs are: more is nearer, 0 is unknown."""
        return self.pair(one, other).score


def links(gpus: Iterable[Gpu]) -> Topology:
    """Return the connections of the GPUs from the open NVML, without unknown ones."""
    ends = [end for end in map(_end, gpus) if end is not None]
    pairs = {}
    for number, end in enumerate(ends):
        for other in ends[number + 1 :]:
            key = (min(end.uuid, other.uuid), max(end.uuid, other.uuid))
            pair = _pair(end, other)
            if pair != _NOTHING:
                pairs[key] = pair
    return Topology(pairs)


@dataclass(frozen=True, slots=True)
class _End:
    """A GPU and the number of its active NVLinks by the PCI address of their other end."""

    uuid: str
    address: str
    handle: Any
    to_gpus: Counter[str]
    to_switches: Counter[str]


def _end(gpu: Gpu) -> _End | None:
    if gpu.uuid is None or gpu.lost is not None:
        return None
    handle = ask_device(gpu.uuid, lambda handle: handle)
    if handle is None:
        return None
    to_gpus: Counter[str] = Counter()
    to_switches: Counter[str] = Counter()
    for link in range(_MOST_LINKS):
        try:
            is_active = pynvml.nvmlDeviceGetNvLinkState(handle, link)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
                continue  # the GPU may have other links
            break
        if is_active:
            _count(handle, link, to_gpus, to_switches)
    return _End(gpu.uuid, (gpu.pci_bus_id or "").upper(), handle, to_gpus, to_switches)


def _count(handle: Any, link: int, to_gpus: Counter[str], to_switches: Counter[str]) -> None:
    info = answered(lambda: pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link))
    address = "" if info is None else f"{info.domain:08X}:{info.bus:02X}:{info.device:02X}.0"
    kind = answered(lambda: pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link))
    if kind == _TO_SWITCH:
        to_switches[address] += 1  # without addresses, all links lead to one fabric
    elif address and kind in (
        None,
        _TO_GPU,
    ):  # an old library doesn't know kinds: the address decides
        to_gpus[address] += 1


def _pair(one: _End, other: _End) -> Pair:
    level = answered(
        lambda: int(pynvml.nvmlDeviceGetTopologyCommonAncestor(one.handle, other.handle))
    )
    direct = max(one.to_gpus[other.address], other.to_gpus[one.address])
    switched = (one.to_switches & other.to_switches).total() if one.to_switches else 0
    return Pair(level, direct + switched)
