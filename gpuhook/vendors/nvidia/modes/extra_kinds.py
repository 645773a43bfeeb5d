# SPDX-License-Identifier: Apache-2.0
"""Modes gds, mofed, gdrcopy, nvswitch, imex and mig: devices of a node other than its GPUs.

hot/extras/live_devices.py finds the same devices for a create without a spec.
"""

from __future__ import annotations

import os

from gpuhook.cdi.hot.container_edits import merged
from gpuhook.errors import GpuhookError, fault
from gpuhook.vendors.nvidia.devices import mig_nodes
from gpuhook.vendors.nvidia.hot import mig_capabilities, vocabulary
from gpuhook.vendors.nvidia.hot.extras import live_devices
from gpuhook.vendors.nvidia.hot.extras.live_devices import DeviceRoots
from gpuhook.vendors.nvidia.spec import device_selection, gpu_spec
from gpuhook.vendors.nvidia.spec.generate_options import Described

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuhook.cdi.hot.container_edits import ContainerEdits, Device
    from gpuhook.vendors.nvidia.discover import Roots
    from gpuhook.vendors.nvidia.spec.generate_options import Choices

IMEX, MIG = "imex", "mig"
# Channels have no UUID.
_CHANNEL_NAMES = {"index": "{}", "type-index": live_devices.IMEX_CHANNEL + "{}"}
_MODE_BITS = 0o444  # of a MIG node whose mode the driver does not set
_MAKE_NODES = (
    "load the kernel module that creates the device nodes, or create them (`gpuhook explain "
    "GH1037` shows how), or name their directory with --dev-root"
)


def describe_kind(mode: str, where: Roots, choices: Choices) -> Described:
    """Return the spec of `mode`.

    Raises GH1213 if this node has none of its devices, GH1512 for a --device-id of another name,
    and in mode mig GH1210 or GH1216.
    """
    if mode == IMEX:
        return _imex(where, choices)
    if mode == MIG:
        return _mig(where, choices)
    kind = next(kind for kind, known in vocabulary.EXTRA_KINDS.items() if known == mode)
    return _whole(mode, kind, where, choices)


def _whole(mode: str, kind: str, where: Roots, choices: Choices) -> Described:
    """Return the spec of a kind whose one device is `all`."""
    if not choices.with_all:
        reason = "its only device, `all`, would be omitted"
        raise fault("GH1213", mode=mode, reason=reason, way="leave out --no-all-device")
    _selected(mode, (device_selection.EVERY,), choices)
    try:
        edits = live_devices.whole(kind, _roots(where))
    except GpuhookError as error:
        reason = f"there is no device node {live_devices.looked_for(kind)}"
        raise fault("GH1213", mode=mode, reason=reason, way=_MAKE_NODES) from error
    return _described({device_selection.EVERY: edits}, choices)


def _imex(where: Roots, choices: Choices) -> Described:
    """Return the spec of the channels of the Internode Memory Exchange that this node has."""
    roots = _roots(where)
    numbers = live_devices.channel_numbers(roots)
    if not numbers:
        reason = f"there is no channel {live_devices.looked_for(vocabulary.IMEX_KIND)}"
        raise fault("GH1213", mode=IMEX, reason=reason, way=_MAKE_NODES)
    names = {
        form.format(number): number
        for strategy, form in _CHANNEL_NAMES.items()
        if strategy in choices.strategies
        for number in numbers
    }
    if not names:
        reason, way = "channels have an index, but no UUID", "take --device-name-strategy index"
        raise fault("GH1213", mode=IMEX, reason=reason, way=way)
    known = {form.format(number): number for number in numbers for form in _CHANNEL_NAMES.values()}
    selected = {known[name] for name in _selected(IMEX, known, choices)}
    devices = {
        name: live_devices.channel(number, roots) or {}
        for name, number in names.items()
        if number in selected
    }
    if choices.with_all:
        devices[device_selection.EVERY] = merged(list(devices.values()))
    return _described(devices, choices)


def _mig(where: Roots, choices: Choices) -> Described:
    """Return the spec of `config` and `monitor`, the access to the administration of MIG.

    They are for privileged containers; MIG instances are devices of mode nvml. A fault of one of
    the two is a warning, unless --device-id names it.
    """
    roots = _roots(where)
    devices: dict[str, ContainerEdits] = {}
    troubles: list[GpuhookError] = []
    for name in _selected(MIG, live_devices.MANAGEMENT_NAMES, choices):
        try:
            if choices.create_nodes:
                _make_management_node(name, where)
            devices[name] = live_devices.management(name, roots) or {}
        except GpuhookError as trouble:
            if name in choices.device_ids:
                raise
            troubles.append(trouble)
    if not devices:
        raise troubles[0]
    return _described(devices, choices, tuple(trouble.message for trouble in troubles))


def _make_management_node(name: str, where: Roots) -> None:
    """Make the node of `config` or `monitor` if it is missing; raises GH1210 if that fails."""
    host = where.host
    capability = live_devices.management_capability(name, host)
    major = mig_capabilities.device_major(mig_capabilities.MAJOR_NAME, host)
    if capability is None or major is None:
        return  # live_devices.management() reports what is missing
    path = where.dev.rstrip("/") + vocabulary.capability_node(capability.minor)
    if os.path.lexists(path):
        return
    mode = _MODE_BITS if capability.mode is None else capability.mode
    try:
        mig_nodes.make(path, major, capability.minor, mode)
    except OSError as error:
        reason = error.strerror or str(error)
        raise live_devices.unusable_management_node(name, path, reason) from error


def _roots(where: Roots) -> DeviceRoots:
    return DeviceRoots(where.dev, where.driver, where.host)


def _selected(mode: str, names: Collection[str], choices: Choices) -> list[str]:
    """Return those of `names` that --device-id selects, by default all; GH1512 for others."""
    ids = choices.device_ids
    if not ids or device_selection.EVERY in ids:
        return list(names)
    for one in ids:
        if one not in names:
            raise fault("GH1512", value=one, reason=f"mode {mode} has {', '.join(names)}")
    return list(dict.fromkeys(ids))


def _described(
    devices: dict[str, ContainerEdits], choices: Choices, warnings: tuple[str, ...] = ()
) -> Described:
    """Return the spec of `devices` by name; they have no common edits."""
    listed: list[Device] = []
    for name, edits in devices.items():
        kept = edits.copy()
        if not choices.additional_gids:
            kept.pop("additionalGids", None)
        listed.append({"name": name, "containerEdits": kept})
    spec = gpu_spec.of_parts(choices.kind, listed, {})
    del spec["containerEdits"]
    return Described(spec, (), warnings)
