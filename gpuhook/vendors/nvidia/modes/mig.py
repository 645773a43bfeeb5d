# SPDX-License-Identifier: Apache-2.0
"""Mode mig: access to the administration of MIG, as the devices `config` and `monitor`.

They are for privileged containers; MIG's instances are devices of mode nvml.
"""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError, fault
from gpuhook.vendors.nvidia.devices import mig_nodes
from gpuhook.vendors.nvidia.hot import live_devices, management_nodes, vocabulary
from gpuhook.vendors.nvidia.modes import node_specs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.vendors.nvidia.modes.mode_roots import ModeRoots
    from gpuhook.vendors.nvidia.spec.generate_options import Choices, Described

MODE = "mig"
_MODE_BITS = 0o444  # of a node whose mode the driver doesn't say


def describe(place: ModeRoots, choices: Choices) -> Described:
    """Return the spec; what one of the two lacks is a warning.

    Raises GH1214 to GH1216 if both lack something, or one that --device-id names, and GH1512 for
    another --device-id. With `create_nodes`, a node that is missing is made.
    """
    roots = node_specs.roots(place)
    found: dict[str, ContainerEdits] = {}
    troubles: list[GpuhookError] = []
    for name in node_specs.chosen(MODE, management_nodes.NAMES, choices):
        try:
            if place.create_nodes:
                _make(name, place)
            found[name] = live_devices.management(name, roots) or {}
        except GpuhookError as trouble:
            if name in choices.device_ids:
                raise
            troubles.append(trouble)
    if not found:
        raise troubles[0]
    return node_specs.described(found, choices, tuple(one.message for one in troubles))


def _make(name: str, place: ModeRoots) -> None:
    """Make the node of `config` or `monitor` where it is missing; GH1214 where that fails."""
    number = management_nodes.minor(name, place.roots.host)
    major = management_nodes.major(management_nodes.MAJOR, place.roots.host)
    if number is None or major is None:
        return  # what is missing then is said by who looks for the node
    path = place.roots.dev.rstrip("/") + vocabulary.capability_node(number)
    if os.path.lexists(path):
        return
    mode = management_nodes.mode(name, place.roots.host)
    try:
        mig_nodes.make(path, major, number, _MODE_BITS if mode is None else mode)
    except OSError as error:
        reason, file = error.strerror or str(error), f"{management_nodes.FILES}/{name}"
        raise fault("GH1214", path=path, name=name, reason=reason, file=file) from error
