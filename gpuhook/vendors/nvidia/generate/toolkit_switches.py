# SPDX-License-Identifier: Apache-2.0
"""The options of generate-cdi that turn parts of a spec on and off, with the toolkit's names."""

from __future__ import annotations

import os
from typing import Any

from gpuhook.errors import fault
from gpuhook.vendors.nvidia.warm import hook_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

EXPLICIT_LIBRARIES = "enable-explicit-driver-libraries"
COHERENT = "enable-coherent-annotations"
NO_GIDS = "no-additional-gids-for-device-nodes"
NO_IPC = "disable-ipc-discoverer"
ONE_CSV_DEVICE = "disable-multiple-csv-devices"
_NVSANDBOXUTILS = ("disable-nvsandboxutils", "disable-nvsandbox-utils")
FLAGS = (EXPLICIT_LIBRARIES, COHERENT, NO_GIDS, NO_IPC, ONE_CSV_DEVICE, *_NVSANDBOXUTILS)
FLAGS_HELP = (
    f"{EXPLICIT_LIBRARIES}: add the vendor-neutral libraries that ship with the driver; "
    f"{COHERENT}: mark each GPU as coherent or not, in annotations and in the files "
    f"NAME.coherent and NAME.noncoherent next to --output-file; {NO_GIDS}; {NO_IPC}: no sockets of "
    f"the driver's daemons; {ONE_CSV_DEVICE}; repeatable, or comma-separated."
)
# The modes in which a flag has an effect; other flags have one in all modes.
_EFFECTIVE = {
    EXPLICIT_LIBRARIES: ("nvml", "proc", "management"),
    COHERENT: ("nvml", "proc"),
    NO_IPC: ("nvml", "proc", "management"),
    ONE_CSV_DEVICE: ("csv",),
}
_HOST_MARK = "@"  # the toolkit's mark of a host path


def choices(
    given: Mapping[str, Any], mode: str, *, is_here: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return (fields of Choices for the options, notes on options without effect).

    Raises GH1515, GH1517 and GH1520.
    """
    flags: tuple[str, ...] = given["feature_flag"]
    disabled: tuple[str, ...] = given["disable_hook"]
    enabled: tuple[str, ...] = given["enable_hook"]
    ldconfig = _ldconfig(given["ldconfig_path"], is_here=is_here)
    off = hook_names.chosen(disabled, enabled)
    if given["hooks"] == "none" and (disabled or enabled or ldconfig):
        option = "--disable-hook" if disabled else "--enable-hook"
        option = option if disabled or enabled else "--ldconfig-path"
        both = f"{option} and --hooks none"
        raise fault("GH1520", options=both, reason="the spec then has no hooks")
    if ldconfig and hook_names.LOADER in off:
        both = f"--ldconfig-path and --disable-hook {hook_names.LOADER}"
        raise fault("GH1520", options=both, reason="that hook runs ldconfig")
    notes = []
    if any(flag in _NVSANDBOXUTILS for flag in flags):
        notes.append(f"{_NVSANDBOXUTILS[0]}: gpuhook never loads that library")
    notes += [
        f"{flag} has no effect in mode {mode}"
        for flag in dict.fromkeys(flags)
        if mode not in _EFFECTIVE.get(flag, (mode,))
    ]
    return {
        "explicit_libraries": EXPLICIT_LIBRARIES in flags,
        "coherent": COHERENT in flags,
        "additional_gids": NO_GIDS not in flags,
        "ipc": NO_IPC not in flags,
        "multiple_csv_devices": ONE_CSV_DEVICE not in flags,
        "disabled_hooks": off,
        "enabled_hooks": frozenset(enabled),
        "ldconfig_path": ldconfig,
    }, notes


def _ldconfig(path: str | None, *, is_here: bool) -> str:
    """Return the path of ldconfig, checked if the spec is for this machine."""
    if not path:
        return ""
    path = path.removeprefix(_HOST_MARK)
    if not path.startswith("/"):
        raise fault("GH1515", what="--ldconfig-path", path=path)
    path = os.path.normpath(path)
    if is_here:
        from gpuhook.apply.live import ldconfig

        path = ldconfig.real_program(path)
        ldconfig.require_usable(path)
    return path
