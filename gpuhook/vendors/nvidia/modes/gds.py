# SPDX-License-Identifier: Apache-2.0
"""Mode gds: GPUDirect Storage, with udev's database and cufile.json."""

from __future__ import annotations

from gpuhook.vendors.nvidia import words
from gpuhook.vendors.nvidia.modes import node_specs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.choices import Choices, Described
    from gpuhook.vendors.nvidia.modes.place import Place


def describe(place: Place, choices: Choices) -> Described:
    """Return the spec of these; raises what node_specs.of_whole raises."""
    return node_specs.of_whole("gds", words.GDS_KIND, place, choices)
