# SPDX-License-Identifier: Apache-2.0
"""Specs of what a node has beside GPUs: the same devices that a create looks for on the spot."""

from __future__ import annotations

from gpuhook.errors import GpuhookError, fault
from gpuhook.vendors.nvidia.hot import live_devices
from gpuhook.vendors.nvidia.hot.live_devices import DeviceRoots
from gpuhook.vendors.nvidia.spec import device_selection, gpu_spec
from gpuhook.vendors.nvidia.spec.generate_options import Described

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuhook.cdi.hot.container_edits import ContainerEdits, Device
    from gpuhook.vendors.nvidia.modes.mode_roots import ModeRoots
    from gpuhook.vendors.nvidia.spec.generate_options import Choices

# What to do where a mode finds no node.
MAKING = (
    "load the kernel module that makes the device nodes, or make them (`gpuhook explain GH1037` "
    "tells how), or name their place with --dev-root"
)


def roots(place: ModeRoots) -> DeviceRoots:
    """Return the roots of a place as on_the_spot wants them."""
    return DeviceRoots(place.roots.dev, place.roots.driver, place.roots.host)


def of_whole(mode: str, kind: str, place: ModeRoots, choices: Choices) -> Described:
    """Return the spec of a kind whose one device is `all`.

    Raises GH1213 if this node has nothing of it, or `all` is left out, GH1512 for a --device-id.
    """
    if not choices.with_all:
        reason = "its one device, `all`, is to be left out"
        raise fault("GH1213", mode=mode, reason=reason, way="leave out --no-all-device")
    chosen(mode, (device_selection.EVERY,), choices)
    try:
        found = live_devices.whole(kind, roots(place))
    except GpuhookError as error:
        looked = live_devices.looked_for(kind)
        reason = f"there is no device node {looked}"
        raise fault("GH1213", mode=mode, reason=reason, way=MAKING) from error
    return described({device_selection.EVERY: found}, choices)


def chosen(mode: str, names: Collection[str], choices: Choices) -> list[str]:
    """Return those of `names` that --device-id asks for, all without one; GH1512 for another."""
    asked = choices.device_ids
    if not asked or device_selection.EVERY in asked:
        return list(names)
    for one in asked:
        if one not in names:
            reason = f"mode {mode} has {', '.join(names)}"
            raise fault("GH1512", value=one, reason=reason)
    return list(dict.fromkeys(asked))


def described(
    devices: dict[str, ContainerEdits], choices: Choices, warnings: tuple[str, ...] = ()
) -> Described:
    """Return the spec of `devices` by name; they have nothing in common."""
    listed: list[Device] = [
        {"name": name, "containerEdits": _chosen_edits(edits, choices)}
        for name, edits in devices.items()
    ]
    made = gpu_spec.of_parts(choices.kind, listed, {})
    del made["containerEdits"]
    return Described(made, (), warnings)


def _chosen_edits(edits: ContainerEdits, choices: Choices) -> ContainerEdits:
    kept = edits.copy()
    if not choices.additional_gids:
        kept.pop("additionalGids", None)
    return kept
