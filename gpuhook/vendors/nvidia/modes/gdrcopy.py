# SPDX-License-Identifier: Apache-2.0
"""Mode gdrcopy: GDRCopy's device."""

from __future__ import annotations

from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.modes import node_specs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.modes.mode_roots import ModeRoots
    from gpuhook.vendors.nvidia.spec.generate_options import Choices, Described


def describe(place: ModeRoots, choices: Choices) -> Described:
    """Return the spec of these; raises what node_specs.of_whole raises."""
    return node_specs.of_whole("gdrcopy", vocabulary.GDRCOPY_KIND, place, choices)
