# SPDX-License-Identifier: Apache-2.0
"""Options of generate-cdi that turn parts of a description on and off, by the toolkit's names."""

from __future__ import annotations

import os
from typing import Any, TypeVar

import click

from gpuhook.errors import fault
from gpuhook.vendors.nvidia.warm import hook_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

EXPLICIT_LIBRARIES = "enable-explicit-driver-libraries"
COHERENT = "enable-coherent-annotations"
NO_GIDS = "no-additional-gids-for-device-nodes"
NO_IPC = "disable-ipc-discoverer"
ONE_CSV_DEVICE = "disable-multiple-csv-devices"
_NVSANDBOXUTILS = ("disable-nvsandboxutils", "disable-nvsandbox-utils")
FLAGS = (EXPLICIT_LIBRARIES, COHERENT, NO_GIDS, NO_IPC, ONE_CSV_DEVICE, *_NVSANDBOXUTILS)
# Modes in which a flag may change something; the others are not limited so.
_EFFECTIVE = {
    EXPLICIT_LIBRARIES: ("nvml", "proc", "management"),
    COHERENT: ("nvml", "proc"),
    NO_IPC: ("nvml", "proc", "management"),
    ONE_CSV_DEVICE: ("csv",),
}
_HOST_MARK = "@"  # the toolkit's mark of a path on the host, where no other can be meant


def words(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a repeatable option whose values may be comma lists."""
    found = (word.strip() for value in values for word in value.split(","))
    kept = tuple(dict.fromkeys(word for word in found if word))
    if values and not kept:
        raise click.BadParameter("it is empty", ctx, param)
    return kept


def one_of(
    *known: str,
) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], tuple[str, ...]]:
    """Return the callback of a repeatable option whose words are among `known`."""

    def callback(
        ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
    ) -> tuple[str, ...]:
        found = words(ctx, param, values)
        for word in found:
            if word not in known:
                raise click.BadParameter(f"{word!r} is not one of {', '.join(known)}", ctx, param)
        return found

    return callback


_OPTIONS = (
    click.option(
        "--feature-flag",
        metavar="FLAG",
        multiple=True,
        callback=one_of(*FLAGS),
        show_envvar=True,
        help=f"{EXPLICIT_LIBRARIES}: the vendor-neutral libraries that come with the driver too; "
        f"{COHERENT}: say of each GPU whether it is coherent, in annotations and in files "
        f"NAME.coherent and NAME.noncoherent beside --output; {NO_GIDS}; {NO_IPC}: no sockets of "
        f"the driver's daemons; {ONE_CSV_DEVICE}; repeatable, or a comma list.",
    ),
    click.option(
        "--disable-hook",
        metavar="NAME",
        multiple=True,
        callback=one_of(*hook_names.NAMES, hook_names.EVERY),
        show_envvar=True,
        help="Leave out a job of the hook, whoever would do it: "
        f"{', '.join(hook_names.NAMES)}, or {hook_names.EVERY}; repeatable, or a comma list.",
    ),
    click.option(
        "--enable-hook",
        metavar="NAME",
        multiple=True,
        callback=one_of(*hook_names.NAMES),
        show_envvar=True,
        help="Do this job, also if --disable-hook names it; chmod is done only then (mode 0755 "
        "for /dev/dri); repeatable, or a comma list.",
    ),
    click.option(
        "--ldconfig-path",
        metavar="PATH",
        show_envvar=True,
        help="Have this ldconfig of the host make containers' loader caches anew, shut in and "
        "without rights. Default: gpuhook merges the driver into the image's cache by itself.",
    ),
)


def options(command: F) -> F:
    """Add the options to a click command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def choices(given: dict[str, Any], mode: str, *, is_here: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (fields of Choices that the options mean, sentences about those without effect).

    They are taken out of `given`. Raises GH1515, GH1517 and GH1520.
    """
    flags: tuple[str, ...] = given.pop("feature_flag")
    disabled: tuple[str, ...] = given.pop("disable_hook")
    enabled: tuple[str, ...] = given.pop("enable_hook")
    ldconfig = _ldconfig(given.pop("ldconfig_path"), is_here=is_here)
    off = hook_names.chosen(disabled, enabled)
    if given["hooks"] == "none" and (disabled or enabled or ldconfig):
        option = "--disable-hook" if disabled else "--enable-hook"
        option = option if disabled or enabled else "--ldconfig-path"
        raise contradiction(f"{option} and --hooks none", "there is no hook then")
    if ldconfig and hook_names.LOADER in off:
        what = f"--ldconfig-path and --disable-hook {hook_names.LOADER}"
        raise contradiction(what, "ldconfig is what that hook runs")
    notes = []
    if any(flag in _NVSANDBOXUTILS for flag in flags):
        notes.append(f"{_NVSANDBOXUTILS[0]}: gpuhook never loads that library")
    notes += [
        f"{flag} changes nothing in mode {mode}"
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


def contradiction(options: str, reason: str) -> Exception:
    """Return the fault of options that cannot be meant together."""
    return fault("GH1520", options=options, reason=reason)


def _ldconfig(path: str | None, *, is_here: bool) -> str:
    """Return the program, checked if it is this machine that runs it."""
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
