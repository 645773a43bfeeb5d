# SPDX-License-Identifier: Apache-2.0
"""The options of `gpuhook generate-cdi`, and the sections in which its --help lists them."""

from __future__ import annotations

from typing import Any, TypeVar

import click

from gpuhook.cdi import spec_file
from gpuhook.cli.generate import generate_section, toolkit_options, vendor_choice
from gpuhook.cli.generate.generate_section import WordsOption
from gpuhook.cli.options import command_sections, file_option, node_options, parameters
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.nvidia.driver import site_rules
from gpuhook.vendors.nvidia.generate import toolkit_switches
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.modes import mode_table
from gpuhook.vendors.nvidia.spec import device_selection
from gpuhook.vendors.nvidia.spec.generate_options import DEFAULT_STRATEGIES, HOOKS
from gpuhook.vendors.nvidia.warm import hook_names
from gpuhook.vendors.spec.spec_choices import DEFAULT_HOOK_PATH, DEFAULT_VERSION, SPEC_VERSIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

F = TypeVar("F", bound="Callable[..., Any]")

_DIRECTORY = click.Path(file_okay=False)


def _option(*names: str, **settings: Any) -> Callable[[F], F]:
    """Return the decorator for an option whose help names its variable."""
    return click.option(*names, show_envvar=True, **settings)


def _words(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a repeatable option whose values may be comma lists."""
    words = [word.strip() for value in values for word in value.split(",")]
    found = tuple(dict.fromkeys(filter(None, words)))
    if values and not found:
        raise click.BadParameter("it is empty", ctx, param)
    known = param.words if isinstance(param, WordsOption) else found
    for word in found:
        if word not in known:
            raise click.BadParameter(f"{word!r} is not one of {', '.join(known)}", ctx, param)
    return found


def _list_option(name: str, *words: str, **settings: Any) -> Callable[[F], F]:
    """Return the decorator for a repeatable option whose values are some of `words`."""
    return _option(name, cls=WordsOption, words=words, multiple=True, callback=_words, **settings)


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
        help="The vendor of the GPUs to describe; auto, the default: each vendor with GPUs on the "
        "node. Or the vendor of the CDI kind of NVIDIA GPUs: a domain (example.com), or any name "
        "with --class.",
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
    _list_option(
        "--device-name-strategy",
        *device_selection.STRATEGIES,
        metavar="|".join(device_selection.STRATEGIES),
        default=DEFAULT_STRATEGIES,
        show_default=True,
        help="How to name devices: 0, GPU-<uuid>, gpu0, MIG instances 0:1, MIG-<uuid>, mig0:1; "
        "repeatable, or comma-separated.",
    ),
    _option(
        "--device-id",
        metavar="ID",
        multiple=True,
        callback=_words,
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
        cls=WordsOption,
        words=(*vocabulary.CAPABILITIES, "all"),
        envvar="GPUHOOK_GENERATE_CDI_DRIVER_CAPABILITIES",
        metavar="LIST",
        callback=parameters.capabilities,
        help="Include only the files and nodes of these capabilities (compute,utility,...). "
        "Default: request.driverCapabilities of the settings, else all.",
    ),
    _list_option(
        "--feature-flag",
        *toolkit_switches.FLAGS,
        metavar="FLAG",
        help=toolkit_switches.FLAGS_HELP,
    ),
    _list_option(
        "--disable-hook",
        *hook_names.NAMES,
        hook_names.EVERY,
        metavar="NAME",
        help="Skip a job of the hook, even when gpuhook-runtime runs it: "
        f"{', '.join(hook_names.NAMES)}, or {hook_names.EVERY}; repeatable, or comma-separated.",
    ),
    _list_option(
        "--enable-hook",
        *hook_names.NAMES,
        metavar="NAME",
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


# Values for a dump of another node, to which the settings of this node do not apply.
_WITH_A_DUMP = {
    "mode": mode_table.AUTO,
    "create_device_nodes": False,
    "files_dir": None,
    "output": None,
}
# Options of Tegra and of GPUs: the settings do not apply in a mode that the caller has chosen and
# that describes neither.
_OF_A_TEGRA = {
    "csv_file": (),
    "csv_ignore_pattern": (),
    "csv_compat_container_root": None,
}
_OF_GPUS = {
    "device_class": None,
    "device_id": (),
    "device_name_strategy": DEFAULT_STRATEGIES,
    "no_all_device": False,
    "create_device_nodes": False,
    "output": None,
}


class GenerateCommand(toolkit_options.ToolkitCommand):
    """generate-cdi, whose --help lists the options in sections."""

    sections = SECTIONS

    def excluded(self, ctx: click.Context) -> Mapping[str, Any]:
        """Return the parameters to which the settings do not apply in a call, and their values."""
        if ctx.params.get("inventory") is not None:
            return _WITH_A_DUMP
        mode = ctx.params.get("mode")
        is_set = generate_section.is_of_settings(ctx, "mode")
        if is_set or mode in (None, mode_table.AUTO, mode_table.CSV):
            return {}
        if mode_table.KINDS[mode] == vocabulary.VOCABULARY.default_kind:
            return _OF_A_TEGRA
        flags = ctx.params.get("feature_flag") or ()
        other_flags = tuple(flag for flag in flags if flag != toolkit_switches.COHERENT)
        return {**_OF_A_TEGRA, **_OF_GPUS, "feature_flag": other_flags}


def generate_options(command: F) -> F:
    """Add the options to the click command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return node_options.spec_options(command)
