# SPDX-License-Identifier: Apache-2.0
"""GPUs that a CDI spec, a container or the kernel module names and that the PCI bus does not have.

A GPU that falls off the bus (Xid 79) disappears from /sys, and sooner or later from /proc and
from NVML. The CDI specs and the containers that use it still name it: by UUID, or by the minor
number of its device node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gpuhook.errors import GpuhookError
from gpuhook.host import documents
from gpuhook.host.hot import state
from gpuhook.node_facts import cdi_specs, container_facts
from gpuhook.node_facts.check import fact
from gpuhook.vendors.nvidia.doctor.facts import driver_facts as facts
from gpuhook.vendors.nvidia.doctor.facts import nvidia_specs as specs
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.inventory import dump
from gpuhook.vendors.nvidia.spec import device_selection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.node_facts.check import ExaminedNode

KINDS = (vocabulary.VENDOR + "/gpu", vocabulary.PLUGIN_KIND)
_NODE_FILE = f"{state.DIRECTORY}/node.json"
_GPU_NODE = re.compile(r"/dev/nvidia([0-9]{1,7})", re.ASCII)


@dataclass(frozen=True, slots=True)
class NamedGpu:
    """A GPU by its names, as far as they are known; `bus_id` is in the form of the kernel.

    `specs` are the paths of the CDI specs that describe it, `containers` those that use it.
    """

    uuid: str = ""
    minor: int | None = None
    bus_id: str = ""
    specs: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the names for a message: "GPU-... at 0000:1b:00.0 (used by ml/train-0/main)"."""
        name = self.uuid or (f"/dev/nvidia{self.minor}" if self.minor is not None else "")
        text = " at ".join(part for part in (name, self.bus_id) if part)
        return text + (f" (used by {', '.join(self.containers)})" if self.containers else "")


def is_missing(node: ExaminedNode, uuid: str | None, pci_bus_id: str | None) -> bool:
    """Return whether the PCI bus does not have the GPU with this UUID or PCI bus id."""
    bus = device_selection.bus_id(pci_bus_id or "")
    return any(
        (uuid and one.uuid == uuid) or (bus and one.bus_id == bus) for one in missing_gpus(node)
    )


def gpu_with_users(
    node: ExaminedNode, uuid: str | None, minor: int | None, pci_bus_id: str | None
) -> NamedGpu:
    """Return a GPU that the driver has, with the containers that use it."""
    bus = device_selection.bus_id(pci_bus_id or "")
    return NamedGpu(uuid or "", minor, bus, containers=_users(node, minor))


@fact
def missing_gpus(node: ExaminedNode) -> tuple[NamedGpu, ...]:
    """Return the GPUs that something names and that the PCI bus does not have, by minor number.

    () if the files of the node do not include /sys. A GPU that cannot be identified is skipped.
    """
    if facts.is_wsl(node) or facts.is_tegra(node) or node.tree.status(facts.PCI) is None:
        return ()
    devices = set(node.tree.names(facts.PCI))
    return tuple(one for one in named_gpus(node) if _is_gone(node, one, devices))


def _is_gone(node: ExaminedNode, gpu: NamedGpu, devices: set[str]) -> bool:
    """Return whether a GPU is certainly not on the bus; `devices` are the bus ids of all devices.

    Without its bus id, that takes a bus without GPUs, or a kernel module that has all of those:
    minor numbers change at a boot, UUIDs do not.
    """
    if gpu.bus_id:
        return gpu.bus_id not in devices
    buses = {one.bus_id for one in facts.pci_gpus(node)}
    if not buses:
        return True
    here = [one for one in facts.gpus(node) if device_selection.bus_id(one.pci_bus_id) in buses]
    minors, uuids = {one.minor for one in here}, {one.uuid for one in here}
    if len(here) < len(buses) or None in minors or (gpu.uuid and gpu.uuid in uuids):
        return False
    if gpu.minor not in minors:
        return True
    return bool(gpu.uuid) and None not in uuids and len(here) < len(named_gpus(node))


@fact
def named_gpus(node: ExaminedNode) -> tuple[NamedGpu, ...]:
    """Return the GPUs that a CDI spec, a container or the kernel module names, by minor number."""
    found: dict[int, NamedGpu] = {}
    for one in specs.valid_specs(node):
        if one.kind in KINDS and not specs.is_hidden(node, one):
            for minor, uuid in _described(one):
                known = found.get(minor, NamedGpu(minor=minor))
                paths = tuple(dict.fromkeys((*known.specs, one.path)))
                found[minor] = replace(known, uuid=uuid or known.uuid, specs=paths)
    for _, minors in _holders(node):
        for minor in minors:
            found.setdefault(minor, NamedGpu(minor=minor))
    for gpu in facts.gpus(node):
        if gpu.minor is not None and all(one.uuid != gpu.uuid for one in found.values()):
            found.setdefault(gpu.minor, NamedGpu(uuid=gpu.uuid or "", minor=gpu.minor))
    return tuple(_completed(node, found[minor]) for minor in sorted(found))


def _described(spec: cdi_specs.SpecFile) -> Iterator[tuple[int, str]]:
    """Yield (minor number, UUID or "") of each device of a spec that is one GPU, or part of it."""
    for device in (spec.document or {}).get("devices") or ():
        nodes = (device.get("containerEdits") or {}).get("deviceNodes") or ()
        minors = _minors(node.get("path") for node in nodes)
        if len(minors) == 1 and device["name"] != device_selection.EVERY:
            name = str(device["name"])
            yield min(minors), name if name.startswith("GPU-") else ""


def _minors(paths: Iterable[object]) -> set[int]:
    found = (_GPU_NODE.fullmatch(path) for path in paths if isinstance(path, str))
    return {int(one[1]) for one in found if one}


def _completed(node: ExaminedNode, gpu: NamedGpu) -> NamedGpu:
    """Add the UUID and PCI address that the driver or generate-cdi recorded, and the users."""
    for uuid, minor, pci_bus_id in _noted(node):
        if uuid == gpu.uuid if uuid and gpu.uuid else minor == gpu.minor:
            bus = device_selection.bus_id(pci_bus_id or "")
            gpu = replace(gpu, uuid=gpu.uuid or uuid or "", bus_id=gpu.bus_id or bus)
    is_anothers = any(
        one.minor == gpu.minor and one.uuid != gpu.uuid for one in facts.gpus(node) if gpu.uuid
    )
    return gpu if is_anothers else replace(gpu, containers=_users(node, gpu.minor))


@fact
def _noted(node: ExaminedNode) -> list[tuple[str | None, int | None, str | None]]:
    """Return (UUID, minor, PCI bus id) of GPUs: the present ones, then those of node.json."""
    found = [(gpu.uuid, gpu.minor, gpu.pci_bus_id) for gpu in facts.gpus(node)]
    try:
        noted = dump.from_dict(documents.parse_json(_read(node, _NODE_FILE)))
    except (GpuhookError, AttributeError, KeyError, TypeError, ValueError):
        return [*found]
    return [*found, *((gpu.uuid, gpu.minor, gpu.pci_bus_id) for gpu in noted.gpus)]


def _users(node: ExaminedNode, minor: int | None) -> tuple[str, ...]:
    """Return the names of the containers that have the node with this minor number."""
    return tuple(dict.fromkeys(name for name, minors in _holders(node) if minor in minors))


def _holders(node: ExaminedNode) -> list[tuple[str, set[int]]]:
    """Return (name, minor numbers) of each container with assigned NVIDIA GPUs."""
    return [
        (name, minors)
        for name, nodes in container_facts.holders(node)
        if (minors := _minors(nodes))
    ]


def _read(node: ExaminedNode, path: str) -> bytes:
    try:
        return node.tree.read(path) or b""
    except OSError:
        return b""
