# SPDX-License-Identifier: Apache-2.0
"""The options of `gpuhook generate-cdi`, and the sections in which its --help lists them."""

from __future__ import annotations

from typing import Any, TypeVar

import click

from gpuhook.cdi import spec_file
from gpuhook.cli.generate import toolkit_options, toolkit_switches, vendor_choice
from gpuhook.cli.options import command_sections, file_option, node_options, parameters
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.nvidia.driver import site_rules
from gpuhook.vendors.nvidia.modes import mode_table
from gpuhook.vendors.nvidia.spec import device_selection
from gpuhook.vendors.nvidia.spec.generate_options import DEFAULT_STRATEGIES, HOOKS
from gpuhook.vendors.nvidia.warm import hook_names
from gpuhook.vendors.spec_choices import DEFAULT_HOOK_PATH, DEFAULT_VERSION, SPEC_VERSIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

_DIRECTORY = click.Path(file_okay=False)


def _option(*names: str, **settings: Any) -> Callable[[F], F]:
    """Return the decorator for an option whose help names its variable."""
    return click.option(*names, show_envvar=True, **settings)


def _list_of(
    *known: str,
) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], tuple[str, ...]]:
    """Return the callback of a repeatable option whose values may be comma lists of `known` words.

    Without `known`, any word is valid.
    """

    def callback(
        ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
    ) -> tuple[str, ...]:
        words = [word.strip() for value in values for word in value.split(",")]
        found = tuple(dict.fromkeys(filter(None, words)))
        if values and not found:
            raise click.BadParameter("it is empty", ctx, param)
        for word in found:
            if known and word not in known:
                raise click.BadParameter(f"{word!r} is not one of {', '.join(known)}", ctx, param)
        return found

    return callback


_VENDORS = "|".join((vendor_choice.AUTO, *(one.name for one in vendors()), "DOMAIN"))
_OPTIONS = (
    _option(
        "--mode",
        envvar="GPUHOOK_GENERATE_CDI_MODE",
        type=click.Choice(mode_table.MODES),
        default=mode_table.AUTO,
        show_default=True,
        help="How to find devices; auto detects the platform.",
    ),
    _option(
        "--config-search-path",
        callback=parameters.not_empty,
        type=_DIRECTORY,
        multiple=True,
        help="A directory below the driver root to search for the driver's configuration files "
        "(ICDs), instead of /etc and the data directories; repeatable.",
    ),
    _option(
        "--csv-file",
        callback=parameters.not_empty,
        type=click.Path(dir_okay=False),
        multiple=True,
        help="On a Tegra, a file that lists what containers get, instead of the system's "
        "devices.csv, drivers.csv and l4t.csv; repeatable, colon-separated in the environment.",
    ),
    _option(
        "--csv-ignore-pattern",
        callback=parameters.not_empty,
        metavar="PATTERN",
        multiple=True,
        help="Ignore the links (`sym`) in these files whose path matches; after **/ the "
        "last part of the path must match; repeatable.",
    ),
    _option(
        "--csv-compat-container-root",
        callback=parameters.not_empty,
        metavar="DIRECTORY",
        help="The directory of newer CUDA libraries in images for this Tegra. Default: "
        "/usr/local/cuda/compat_orin on Orin, else /usr/local/cuda/compat.",
    ),
    _option(
        "--files-dir",
        type=click.Path(exists=True, file_okay=False),
        help="A directory of *.yaml files that add or remove driver files. "
        f"Default: {site_rules.DIRECTORY}, if it exists.",
    ),
    file_option.output_file(
        "output",
        envvar=["GPUHOOK_GENERATE_CDI_OUTPUT_FILE", "GPUHOOK_GENERATE_CDI_OUTPUT"],
        show_envvar=True,
        help="Write FILE (*.yaml or *.json) atomically, and compile it for the runtime wrapper. "
        "Default, and -: standard output.",
    ),
    file_option.output_format(
        spec_file.FORMATS, envvar="GPUHOOK_GENERATE_CDI_FORMAT", show_envvar=True
    ),
    _option(
        "--vendor",
        callback=parameters.not_empty,
        metavar=_VENDORS,
        help="Whose GPUs to describe; auto, the default: of each vendor that the node has. Or the "
        "vendor of the kind (example.com) of NVIDIA GPUs.",
    ),
    _option(
        "--cdi-version",
        envvar="GPUHOOK_GENERATE_CDI_CDI_VERSION",
        type=click.Choice(SPEC_VERSIONS),
        default=DEFAULT_VERSION,
        show_default=True,
        help="The newest version of CDI that the engines read, for AMD GPUs. 0.5.0: podman 4.3; no "
        "token, by which gpuhook-runtime detects a stale spec. 0.7.0: nodes with the host's mode, "
        "and its groups for the container's user, which Docker ignores; in older versions, every "
        "user of the container may open the nodes.",
    ),
    _option(
        "--class",
        "device_class",
        envvar="GPUHOOK_GENERATE_CDI_CLASS",
        callback=parameters.not_empty,
        help="Class of the kind. Default: the class of the mode, gpu.",
    ),
    _option(
        "--device-name-strategy",
        metavar="|".join(device_selection.STRATEGIES),
        multiple=True,
        default=DEFAULT_STRATEGIES,
        callback=_list_of(*device_selection.STRATEGIES),
        show_default=True,
        help="How to name devices: 0, GPU-<uuid>, gpu0, MIG instances 0:1, MIG-<uuid>, mig0:1; "
        "repeatable, or comma-separated.",
    ),
    _option(
        "--device-id",
        metavar="ID",
        multiple=True,
        callback=_list_of(),
        help="Describe only this GPU (index, UUID or PCI bus id) or MIG instance (0:1, UUID); "
        "none: all devices, without the device `all`; repeatable, or comma-separated.",
    ),
    _option(
        "--create-device-nodes",
        is_flag=True,
        help="Create the missing nodes of MIG instances below /dev/nvidia-caps.",
    ),
    _option("--no-all-device", is_flag=True, help="Omit the device `all`."),
    _option(
        "--hooks",
        type=click.Choice(HOOKS),
        default="gpuhook",
        show_default=True,
        help="none: omit hooks, for engines and hosts that cannot run them.",
    ),
    _option(
        "--hook-path",
        callback=parameters.not_empty,
        metavar="PATH",
        help="The path of gpuhook-hook on the host. Default: the gpuhook-hook of this "
        "installation; if there is none, the spec has no hooks. With --inventory: "
        f"{DEFAULT_HOOK_PATH}.",
    ),
    _option(
        "--driver-capabilities",
        "capabilities",
        envvar="GPUHOOK_GENERATE_CDI_DRIVER_CAPABILITIES",
        metavar="LIST",
        callback=parameters.capabilities,
        help="Include only the files and nodes of these capabilities (compute,utility,...). "
        "Default: request.driverCapabilities of the settings, else all.",
    ),
    _option(
        "--feature-flag",
        metavar="FLAG",
        multiple=True,
        callback=_list_of(*toolkit_switches.FLAGS),
        help=toolkit_switches.FLAGS_HELP,
    ),
    _option(
        "--disable-hook",
        metavar="NAME",
        multiple=True,
        callback=_list_of(*hook_names.NAMES, hook_names.EVERY),
        help="Skip a job of the hook, even when gpuhook-runtime runs it: "
        f"{', '.join(hook_names.NAMES)}, or {hook_names.EVERY}; repeatable, or comma-separated.",
    ),
    _option(
        "--enable-hook",
        metavar="NAME",
        multiple=True,
        callback=_list_of(*hook_names.NAMES),
        help="Run this job of the hook, even if --disable-hook names it; chmod (mode 0755 for "
        "/dev/dri) is only done if it is named here; repeatable, or comma-separated.",
    ),
    _option(
        "--ldconfig-path",
        callback=parameters.not_empty,
        metavar="PATH",
        help="Rebuild containers' loader caches with this ldconfig of the host, sandboxed and "
        "without privileges. Default: gpuhook merges the driver into the image's cache.",
    ),
)
EXAMPLES = """
\b
Examples:
  gpuhook generate-cdi --output-file /var/run/cdi/nvidia.yaml
  gpuhook generate-cdi --mode imex --output-file /etc/cdi/imex.yaml
  gpuhook generate-cdi --vendor amd --output-file /var/run/cdi/amd.yaml
  gpuhook generate-cdi --inventory a100-mig --format json
"""
SECTIONS = {
    "Devices": (
        "mode", "device-id", "no-all-device", "device-name-strategy", "vendor", "class",
        "driver-capabilities", "feature-flag", "create-device-nodes",
    ),
    command_sections.OUTPUT: ("output-file", "output", "cdi-version"),
    "Container edits": (
        "hooks", "hook-path", "disable-hook", "enable-hook", "ldconfig-path",
    ),
    "Tegra": ("csv-file", "csv-ignore-pattern", "csv-compat-container-root"),
    "Driver files": ("config-search-path", "files-dir"),
    command_sections.NODE: command_sections.NODE_OPTIONS,
}  # fmt: skip


class GenerateCommand(toolkit_options.ToolkitCommand):
    """generate-cdi, whose --help lists the options in sections."""

    sections = SECTIONS


def generate_options(command: F) -> F:
    """Add the options to the click command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return node_options.spec_options(command)


def csv_choices(options: dict[str, Any], mode: str) -> dict[str, Any]:
    """Return the --csv options of a command as fields of Choices.

    Raises a usage error if `mode` is neither auto nor csv.
    """
    found = {
        "csv_files": options["csv_file"],
        "csv_ignore_patterns": options["csv_ignore_pattern"],
        "csv_compat_root": options["csv_compat_container_root"] or "",
    }
    if any(found.values()) and mode not in ("auto", "csv"):
        raise click.UsageError(f"the options --csv-... have no effect with --mode {mode}")
    return found


def csv_notes(found: dict[str, Any], mode: str) -> list[str]:
    """Return a note if --csv options have no effect in `mode`, the mode of this machine."""
    if mode == "csv" or not any(found.values()):
        return []
    return [f"the options --csv-... have no effect in mode {mode}"]
