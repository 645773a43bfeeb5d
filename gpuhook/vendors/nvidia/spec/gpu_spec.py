# SPDX-License-Identifier: Apache-2.0
"""A node as a CDI spec: its GPUs and MIG instances, and the driver's edits for every container.

Device nodes carry no numbers: the program that applies the spec reads the node itself, so no number
can be stale. The spec declares the lowest sufficient CDI version, since engines refuse newer ones.
"""

from __future__ import annotations

from gpuhook.cdi.hot import spec_versions
from gpuhook.vendors.nvidia.nvml import coherence
from gpuhook.vendors.nvidia.spec import device_selection
from gpuhook.vendors.nvidia.spec.driver_edits import common, limited, node_edits
from gpuhook.vendors.nvidia.spec.generate_options import Choices, Described

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, TypeAlias

    from gpuhook.cdi.hot.container_edits import ContainerEdits, Device, Spec
    from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode, Gpu, MigInstance, Node

    OwnNodes: TypeAlias = tuple[Gpu, MigInstance | None, list[DeviceNode]]

# podman 4 reads nothing newer; in older versions no device name is a number.
_LOWEST_VERSION = "0.5.0"
_PARTS = ("env", "deviceNodes", "mounts", "hooks")


def describe(node: Node, choices: Choices) -> Described:
    """Return the CDI spec of `node`; raises GH1511 to GH1513 as device_selection.chosen does."""
    gpus, warnings = device_selection.chosen(node, choices.device_ids)
    own = _own_nodes(limited(node, choices), gpus)
    edits, missing = common(node, choices, gpus)
    spec = of_parts(choices.kind, devices(own, choices), edits)
    further = []
    if choices.coherent:
        missing += coherence.unknown(gpus)
        for infix, some in coherence.groups(gpus):
            mine = [one for one in own if one[0] in some]
            further.append((infix, of_parts(choices.kind + infix, devices(mine, choices), edits)))
    nameless = device_selection.nameless(gpus, choices.strategies)
    return Described(spec, gpus, (*warnings, *nameless, *missing), node, tuple(further))


def of_parts(kind: str, devices: list[Device], common: ContainerEdits) -> Spec:
    """Return the spec of `devices`, each of which comes with the edits `common`.

    A device does not repeat the common edits, unless nothing else would remain.
    """
    devices = [without_common(device, common) for device in devices]
    spec: Spec = {
        "cdiVersion": _LOWEST_VERSION,
        "kind": kind,
        "devices": devices,
        "containerEdits": common,
    }
    lowest = spec_versions.lowest(dict(spec))
    spec["cdiVersion"] = max(_LOWEST_VERSION, lowest, key=spec_versions.VERSIONS.index)
    return spec


def without_common(device: Device, common: ContainerEdits) -> Device:
    """Return `device` without the edits in `common`, unchanged if nothing would remain.

    A spec's own edits are applied before its devices', so nothing changes for a container.
    """
    left: dict[str, Any] = {}
    for key, items in device["containerEdits"].items():
        known = common.get(key)
        if key in _PARTS and isinstance(items, list) and isinstance(known, list):
            items = [item for item in items if item not in known]
            if not items:
                continue
        left[key] = items
    if not left or left == device["containerEdits"]:
        return device
    return {**device, "containerEdits": left}  # type: ignore[typeddict-item] # the keys are its own


def _own_nodes(node: Node, gpus: tuple[Gpu, ...]) -> list[OwnNodes]:
    nodes = {device.path: device for device in node.device_nodes}
    return [
        (gpu, instance, [nodes[path] for path in _paths(gpu, instance) if path in nodes])
        for gpu in gpus
        for instance in device_selection.offered(gpu)
    ]


def devices(own: list[OwnNodes], choices: Choices) -> list[Device]:
    """Return the devices of GPUs and MIG instances with these nodes, under all of their names."""
    found: list[Device] = [
        {
            "name": name,
            **_annotations(gpu, choices),
            "containerEdits": node_edits(mine, choices),
        }
        for strategy in dict.fromkeys(choices.strategies)
        for gpu, instance, mine in own
        for name in device_selection.names(gpu, (strategy,), instance)
    ]
    if choices.with_all:
        # Instances of one GPU have its node in common.
        every = {device.path: device for *_, mine in own for device in mine}
        found.append(whole_device(every.values(), choices))
    return found


def whole_device(nodes: Iterable[DeviceNode], choices: Choices) -> Device:
    """Return the device `all` with these nodes."""
    return {"name": device_selection.EVERY, "containerEdits": node_edits(nodes, choices)}


def _paths(gpu: Gpu, instance: MigInstance | None) -> list[str]:
    return device_selection.node_paths(gpu, instance) + device_selection.drm_paths(gpu, instance)


def _annotations(gpu: Gpu, choices: Choices) -> Device:
    if not choices.coherent or gpu.coherent is None:
        return {}
    return {"annotations": {coherence.ANNOTATION: str(gpu.coherent).lower()}}
