# SPDX-License-Identifier: Apache-2.0
"""A node's AMD GPUs and partitions as a CDI spec: device nodes alone, since images have ROCm.

Device nodes carry no numbers: the program that applies the spec reads the node itself, as the major
of /dev/kfd differs between boots. The render node grants a device: KFD looks for it in the device
cgroup.
"""

from __future__ import annotations

from gpuhook.cdi.hot import spec_versions
from gpuhook.errors import fault
from gpuhook.vendors.amd.hot.amd_words import HANDLED, KFD, KIND
from gpuhook.vendors.amd.spec import amd_selection
from gpuhook.vendors.spec.spec_choices import DescribedDevices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.cdi.hot.container_edits import ContainerEdits, DeviceNode, Spec
    from gpuhook.vendors.amd.inventory.amd_inventory import AmdDevice, AmdDeviceNode, AmdNode
    from gpuhook.vendors.spec.spec_choices import SpecChoices

_LOWEST_VERSION = "0.5.0"  # in older versions no device name is a number
_WITH_GROUPS = "0.7.0"
_EVERYBODY = 0o666
_OF_KFD = ("compute", "utility")
_OF_CARD = ("display",)
_NO_KFD = f"the node has no {KFD}: containers can use graphics and video, but not ROCm"


def describe(node: AmdNode, choices: SpecChoices) -> DescribedDevices:
    """Return the CDI spec of `node`.

    Raises GH1511 and GH1512 for `device_ids`, and GH1513 if no device is left.
    """
    pairs, left_out = amd_selection.chosen(node, choices.device_ids)
    if not pairs:
        raise fault("GH1513", reasons="".join(f"; {one}" for one in (*node.warnings, *left_out)))
    nodes = {one.path: one for one in node.device_nodes}
    warnings = [*node.warnings, *left_out]
    kfd = [KFD] if _has(choices, _OF_KFD) else []
    if kfd and KFD not in nodes:
        warnings.append(_NO_KFD)
    names = amd_selection.names(node, pairs, with_all=choices.with_all)
    spec: Spec = {
        "cdiVersion": _LOWEST_VERSION,
        "kind": KIND,
        "containerEdits": {"env": [HANDLED], **_edits(kfd, nodes, choices)},
        "devices": [
            {"name": name, "containerEdits": _edits(_paths(some, choices), nodes, choices)}
            for name, some in names.items()
        ],
    }
    lowest = spec_versions.lowest(dict(spec))
    spec["cdiVersion"] = max(_LOWEST_VERSION, lowest, key=spec_versions.VERSIONS.index)
    return DescribedDevices(spec, node.token, tuple(warnings))


def _has(choices: SpecChoices, capabilities: tuple[str, ...]) -> bool:
    return choices.capabilities is None or not choices.capabilities.isdisjoint(capabilities)


def _paths(devices: Iterable[AmdDevice], choices: SpecChoices) -> list[str]:
    """Return the nodes of devices; a card is for display only, and ROCm needs none."""
    found = []
    for device in devices:
        if device.card_path is not None and _has(choices, _OF_CARD):
            found.append(device.card_path)
        found.append(device.render_path)
    return found


def _edits(
    paths: list[str], nodes: dict[str, AmdDeviceNode], choices: SpecChoices
) -> ContainerEdits:
    """Return the edits that give a container the nodes at `paths`, as far as the host has them.

    The host restricts them to the groups render and video. Up to version 0.6.0 every user in the
    container may open them. Version 0.7.0 can add the groups to the container's user instead.
    """
    found = [nodes[path] for path in paths if path in nodes]
    has_groups = choices.newest == _WITH_GROUPS
    edits: ContainerEdits = {}
    if found:
        edits["deviceNodes"] = [_entry(one, choices, has_groups) for one in found]
    closed = [one.gid for one in found if one.gid and one.mode & _EVERYBODY != _EVERYBODY]
    if closed and has_groups:
        edits["additionalGids"] = list(dict.fromkeys(closed))
    return edits


def _entry(node: AmdDeviceNode, choices: SpecChoices, has_groups: bool) -> DeviceNode:
    entry: DeviceNode = {"path": node.path}
    dev_root = choices.dev_root.rstrip("/")
    if choices.has_numbers:
        entry |= {"type": "c", "major": node.major, "minor": node.minor}
    elif dev_root:
        entry["hostPath"] = dev_root + node.path
    entry["fileMode"] = node.mode if has_groups else node.mode | _EVERYBODY
    entry["permissions"] = "rw"
    if node.gid:
        entry["gid"] = node.gid
    return entry
