# SPDX-License-Identifier: Apache-2.0
"""Which modes there are, of which kind their devices are, and which one fits a place."""

from __future__ import annotations

from importlib import import_module

from gpuhook.vendors.nvidia import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.vendors.nvidia.choices import Choices, Described
    from gpuhook.vendors.nvidia.modes.place import Place

AUTO, NVML, MANAGEMENT = "auto", "nvml", "management"
# Modes and the kind of their devices; each is a module of this package with `describe`.
KINDS = {
    NVML: "nvidia.com/gpu",
    MANAGEMENT: "management.nvidia.com/gpu",
    **{mode: kind for kind, mode in words.EXTRA_KINDS.items()},
}
MODES = (AUTO, *KINDS)


def chosen(mode: str, place: Place) -> str:  # noqa: ARG001 # one mode fits all places
    """Return the mode that `mode` means at `place`: `auto` looks what platform it is."""
    return NVML if mode == AUTO else mode


def describe(mode: str, place: Place, choices: Choices) -> Described:
    """Return what the mode `mode` (not `auto`) describes at `place`."""
    module = import_module(f"gpuhook.vendors.nvidia.modes.{mode}")
    of_mode: Callable[[Place, Choices], Described] = module.describe
    return of_mode(place, choices)
