# SPDX-License-Identifier: Apache-2.0
"""The modes of generate-cdi, the kinds of their devices, and the mode that fits a node."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.modes import platform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.vendors.nvidia.discover import Roots
    from gpuhook.vendors.nvidia.spec.generate_options import Choices, Described

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
OF_DRIVER_FILES = (NVML, PROC, WSL, CSV, MANAGEMENT)  # the site's rules apply
_UNLOADABLE = ("GH1200", "GH1202")  # NVML is missing, or cannot be loaded
_WITHOUT_NVML = "{code}: {message}; the GPUs are described by /proc alone, as --mode proc does"


def chosen(mode: str, where: Roots) -> str:
    """Return the mode that `mode` means at `where`: `auto` detects the platform.

    WSL is checked first, then Tegra; on all other platforms it is mode nvml.
    """
    if mode != AUTO:
        return mode
    if platform.is_wsl(where):
        return WSL
    if platform.is_tegra(where):
        return CSV
    return NVML


def described(mode: str, where: Roots, choices: Choices) -> Described:
    """Return the result of the mode `mode` at `where`.

    With `auto`, GPUs whose NVML cannot be loaded are described without it, with a warning.
    """
    meant = chosen(mode, where)
    try:
        return describe(meant, where, choices)
    except GpuhookError as error:
        if mode != AUTO or meant != NVML or error.code not in _UNLOADABLE:
            raise
        try:
            found = describe(PROC, where, choices)
        except GpuhookError:
            raise error from None  # no driver either: the first fault is more precise
        reason = _WITHOUT_NVML.format(code=error.code, message=error.message)
        return replace(found, warnings=(reason, *found.warnings))


def describe(mode: str, where: Roots, choices: Choices) -> Described:
    """Return the result of the mode `mode` (not `auto`) at `where`."""
    if mode in vocabulary.EXTRA_KINDS.values():
        from gpuhook.vendors.nvidia.modes import extra_kinds

        return extra_kinds.describe_kind(mode, where, choices)
    module = import_module(f"gpuhook.vendors.nvidia.modes.{mode}")
    of_mode: Callable[[Roots, Choices], Described] = module.describe
    return of_mode(where, choices)
