# SPDX-License-Identifier: Apache-2.0
"""Which modes there are, of which kind their devices are, and which one fits a place."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.modes import platform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.vendors.nvidia.spec.generate_options import Choices, Described, ModeRoots

AUTO, NVML, PROC, WSL, CSV = "auto", "nvml", "proc", "wsl", "csv"
MANAGEMENT = "management"
# Modes and the kind of their devices. A mode is a module of this package with `describe`, or one of
# extra_kinds.py.
KINDS = {
    NVML: "nvidia.com/gpu",
    PROC: "nvidia.com/gpu",
    WSL: "nvidia.com/gpu",
    CSV: "nvidia.com/gpu",
    MANAGEMENT: "management.nvidia.com/gpu",
    **{mode: kind for kind, mode in vocabulary.EXTRA_KINDS.items()},
}
MODES = (AUTO, *KINDS)
OF_DRIVER_FILES = (NVML, PROC, WSL, CSV, MANAGEMENT)  # to which a site may add files, and drop some
_UNLOADABLE = ("GH1200", "GH1202")  # NVML is not there, or nothing that can be loaded
_INSTEAD = "{code}: {message}; the GPUs are described by /proc alone, as --mode proc does"


def chosen(mode: str, place: ModeRoots) -> str:
    """Return the mode that `mode` means at `place`: `auto` looks what platform it is.

    WSL is looked for first, then Tegra; everywhere else NVML is asked.
    """
    if mode != AUTO:
        return mode
    if platform.is_wsl(place):
        return WSL
    if platform.is_tegra(place):
        return CSV
    return NVML


def described(mode: str, place: ModeRoots, choices: Choices) -> Described:
    """Return what the mode `mode` describes at `place`.

    With `auto`, GPUs whose NVML cannot be loaded are described without it, and a warning says so.
    """
    meant = chosen(mode, place)
    try:
        return describe(meant, place, choices)
    except GpuhookError as error:
        if mode != AUTO or meant != NVML or error.code not in _UNLOADABLE:
            raise
        try:
            found = describe(PROC, place, choices)
        except GpuhookError:
            raise error from None  # without a driver either: the first says more
        reason = _INSTEAD.format(code=error.code, message=error.message)
        return replace(found, warnings=(reason, *found.warnings))


def describe(mode: str, place: ModeRoots, choices: Choices) -> Described:
    """Return what the mode `mode` (not `auto`) describes at `place`."""
    if mode in vocabulary.EXTRA_KINDS.values():
        from gpuhook.vendors.nvidia.modes import extra_kinds

        return extra_kinds.describe_kind(mode, place, choices)
    module = import_module(f"gpuhook.vendors.nvidia.modes.{mode}")
    of_mode: Callable[[ModeRoots, Choices], Described] = module.describe
    return of_mode(place, choices)
