# SPDX-License-Identifier: Apache-2.0
"""The devices of any vendor as the device plugin offers them, and the rules that name them."""

from __future__ import annotations

import re
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or a part of one: a MIG instance or a partition.

    `paths` are its device nodes as containers see them, the parent's first; `host_paths` are the
    same nodes on the host, in the same order.
    """

    uuid: str  # "GPU-...", "MIG-...", or another id that is unique on the node
    index: str  # "0", or "0:1" for the second instance of GPU 0
    gpu: str  # UUID of the physical GPU: its own, or its parent's
    gpu_index: int
    paths: tuple[str, ...]
    host_paths: tuple[str, ...]
    model: str | None = None  # "Tesla T4"
    memory_bytes: int | None = None
    numa_node: int | None = None
    compute_capability: str | None = None  # "7.5"
    profile: str | None = None  # "1g.5gb" of an instance, "cpx_nps4" of a partition
    instance: tuple[int, int] | None = None  # (GPU instance, compute instance) of MIG
    domain: str = "nvidia.com"  # of the vendor
    compute: tuple[int, int] | None = None  # units, and the number that a share is a multiple of


@dataclass(frozen=True, slots=True)
class ComputeShare:
    """The `replicas` of a device that a container has, numbers from 0, of all `replica_count`."""

    device: Device
    replicas: tuple[int, ...]
    replica_count: int


@dataclass(frozen=True, slots=True)
class NamedDevice:
    """A device, the name of its resource, and the keys of its names."""

    resource: str
    device: Device
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class NamingRules:
    """How a vendor's devices are named: `strategy` for parts of GPUs, and (pattern, resource).

    The first pattern that matches a model, or the profile of a part, applies. Without `models`, the
    vendor's own name applies. `excluded` devices are not offered.
    """

    strategy: str
    models: tuple[tuple[str, str], ...] = ()
    profiles: tuple[tuple[str, str], ...] = ()
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NamedDevices:
    """The devices of a vendor in their order, warnings, and the `excluded` names of no device."""

    devices: tuple[NamedDevice, ...] = ()
    warnings: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def selector_key(name: str) -> str:
    """Return the form of a device name in which names are compared.

    Upper and lower case are equal, a PCI bus id can have any length, and a model can have the form
    of a label: Tesla-T4 for "Tesla T4".
    """
    return bus_id(name.strip()) or "-".join(name.lower().split())


def bus_id(text: str) -> str:
    """Return a PCI bus id as the kernel writes it, 0000:00:1e.0; "" if `text` is not one.

    NVML writes eight digits of domain in upper case; a domain may be left out.
    """
    parts = text.lower().replace(".", ":").split(":")
    if len(parts) == 3:
        parts = ["0", *parts]
    try:
        domain, bus, device, function = (int(part, 16) for part in parts)
    except ValueError:
        return ""
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"


def capability(text: str | None) -> tuple[int, int] | None:
    """Return a compute capability as numbers, None for another text.

    >>> capability("7.5")
    (7, 5)
    """
    major, _, minor = (text or "").partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


def first_match(patterns: Iterable[tuple[str, str]], text: str) -> str | None:
    """Return the resource of the first pattern that matches all of `text`; * is any text."""
    return next((name for pattern, name in patterns if _matches(pattern, text)), None)


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None
