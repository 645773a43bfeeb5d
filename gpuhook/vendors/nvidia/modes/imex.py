# SPDX-License-Identifier: Apache-2.0
"""Mode imex: the channels of NVIDIA's Internode Memory Exchange that this node has."""

from __future__ import annotations

from gpuhook.cdi.hot.container_edits import merged
from gpuhook.errors import fault
from gpuhook.vendors.nvidia.hot import live_devices, vocabulary
from gpuhook.vendors.nvidia.modes import node_specs
from gpuhook.vendors.nvidia.spec import device_selection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.modes.mode_roots import ModeRoots
    from gpuhook.vendors.nvidia.spec.generate_options import Choices, Described

MODE = "imex"
# How channels are called, by the strategy; they have no UUID.
_NAMES = {"index": "{}", "type-index": live_devices.IMEX_CHANNEL + "{}"}


def describe(place: ModeRoots, choices: Choices) -> Described:
    """Return the spec of the channels; raises GH1213 if there is none, GH1512 for a --device-id."""
    roots = node_specs.roots(place)
    numbers = live_devices.channel_numbers(roots)
    if not numbers:
        looked = live_devices.looked_for(vocabulary.IMEX_KIND)
        reason = f"there is no channel {looked}"
        raise fault("GH1213", mode=MODE, reason=reason, way=node_specs.MAKING)
    names = {
        form.format(number): number
        for strategy, form in _NAMES.items()
        if strategy in choices.strategies
        for number in numbers
    }
    if not names:
        reason, way = "channels have an index, and no UUID", "take --device-name-strategy index"
        raise fault("GH1213", mode=MODE, reason=reason, way=way)
    known = {form.format(number): number for number in numbers for form in _NAMES.values()}
    chosen = {known[one] for one in node_specs.chosen(MODE, known, choices)}
    parts = {name: number for name, number in names.items() if number in chosen}
    found = {name: live_devices.channel(number, roots) or {} for name, number in parts.items()}
    if choices.with_all:
        found[device_selection.EVERY] = merged(list(found.values()))
    return node_specs.described(found, choices)
