# SPDX-License-Identifier: Apache-2.0
"""The devices of a vendor for ResourceSlices: their names, facts and shared counters.

Texts and names are within the limits of the API, resource.k8s.io/v1, whatever the driver reports.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    Attribute: TypeAlias = "str | int | bool | Version"

STANDARD = "resource.kubernetes.io"  # the domain of attributes that all drivers share
LONGEST_TEXT = 64  # bytes of an attribute
LONGEST_LABEL = 63
_PCI_ROOT = re.compile(r"/(pci[0-9a-f]{4,8}:[0-9a-f]{2})(?:/|$)")
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Version:
    """An attribute that is a semantic version: 580.65.6, without leading zeros."""

    text: str


@dataclass(frozen=True, slots=True)
class DraDevice:
    """A device as claims see it.

    `place` orders the devices of a node: the PCI address, and the number in the GPU. `chip` are the
    parts of the GPU that the device has, such as multiprocessors: capacities of a device that one
    claim has alone. `counters` are what the device consumes of each counter set.
    """

    name: str  # "gpu-0"
    place: tuple[str, int]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    chip: Mapping[str, int] = field(default_factory=dict)
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DraDevices:
    """The devices of a part by the UUID of the device plugin, and what their GPUs have in all."""

    devices: Mapping[str, DraDevice] = field(default_factory=dict)
    counter_sets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def known_attributes(facts: Mapping[str, Attribute | None]) -> dict[str, Attribute]:
    """Return the facts that are known, without empty texts; long texts are cut."""
    found: dict[str, Attribute] = {}
    for name, value in facts.items():
        if isinstance(value, str):
            text = value.encode()[:LONGEST_TEXT].decode(errors="ignore").strip()
            found |= {name: text} if text else {}
        elif value is not None and not (isinstance(value, int) and abs(value) > _LARGEST):
            found[name] = value
    return found


def semantic_version(text: str | None) -> Version | None:
    """Return a version of numbers with dots in the form of semver.org; None for another text.

    >>> semantic_version("580.65.06"), semantic_version("9.0"), semantic_version("unknown")
    (Version(text='580.65.6'), Version(text='9.0.0'), None)
    """
    match = re.match(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?", text or "")
    if match is None:
        return None
    return Version(".".join(str(int(number or 0)) for number in match.groups()))


def pci_attributes(
    host_root: str | None, address: str, numa_node: int | None
) -> dict[str, Attribute | None]:
    """Return the attributes by which claims combine devices of several drivers.

    Without `host_root`, as for an inventory file, the root complex is unknown.
    """
    return {
        f"{STANDARD}/pciBusID": address,
        f"{STANDARD}/pcieRoot": None if host_root is None else _pci_root(host_root, address),
        f"{STANDARD}/numaNode": None if numa_node is None or numa_node < 0 else numa_node,
    }


def _pci_root(host_root: str, address: str) -> str | None:
    if not address:
        return None
    path = os.path.realpath(os.path.join(host_root, f"sys/bus/pci/devices/{address}"))
    match = _PCI_ROOT.search(path)
    return match[1] if match else None


def label(text: str) -> str:
    """Return a text as a DNS label, "gpu-0-mig-1g-5gb-me": the form of names of devices."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:LONGEST_LABEL].strip("-")
