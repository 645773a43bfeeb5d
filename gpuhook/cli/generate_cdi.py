# SPDX-License-Identifier: Apache-2.0
"""`gpuhook generate-cdi`: a node as a CDI spec, for engines that read CDI and for the wrapper."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import click

from gpuhook.cdi import spec_file, validate
from gpuhook.cdi.hot import names
from gpuhook.cli.generate import (
    csv_options,
    generate_help,
    recorded_argv,
    spec_writer,
    toolkit_options,
    toolkit_switches,
)
from gpuhook.cli.options import node_options, parameters
from gpuhook.cli.options.node_options import load_node
from gpuhook.errors import fault
from gpuhook.host import console
from gpuhook.host.hot import state
from gpuhook.node import settings_file
from gpuhook.vendors.nvidia.driver import site_rules
from gpuhook.vendors.nvidia.hot.rootfs import hook_args
from gpuhook.vendors.nvidia.inventory import discover
from gpuhook.vendors.nvidia.modes import mode_table
from gpuhook.vendors.nvidia.spec import device_selection
from gpuhook.vendors.nvidia.spec.generate_options import (
    DEFAULT_HOOK_PATH,
    DEFAULT_STRATEGIES,
    HOOKS,
    Choices,
    Described,
    ModeRoots,
)
from gpuhook.vendors.nvidia.spec.gpu_spec import describe as spec_of_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


@click.command(
    name="generate-cdi", cls=generate_help.GenerateCommand, epilog=generate_help.EXAMPLES
)
@node_options.spec_options
@click.option(
    "--mode",
    type=click.Choice(mode_table.MODES),
    default=mode_table.AUTO,
    show_default=True,
    envvar="GPUHOOK_GENERATE_CDI_MODE",
    show_envvar=True,
    help="How devices are found; auto looks what platform this is.",
)
@click.option(
    "--config-search-path",
    type=click.Path(file_okay=False),
    multiple=True,
    show_envvar=True,
    help="A directory below the driver root to look for the driver's configuration files (ICDs) "
    "in, instead of /etc and the data directories; repeatable.",
)
@csv_options.csv_options
@click.option(
    "--files-dir",
    type=click.Path(exists=True, file_okay=False),
    show_envvar=True,
    help="Where *.yaml files of this site add driver files and drop some. "
    f"Default: {site_rules.DIRECTORY}, if it is there.",
)
@click.option(
    "--output",
    metavar="FILE",
    show_envvar=True,
    help="Write FILE (*.yaml or *.json), atomically, and prepare it for the runtime wrapper. "
    "Default, and -: standard output.",
)
@click.option(
    "--format",
    "fmt",
    type=click.Choice(spec_file.FORMATS),
    envvar="GPUHOOK_GENERATE_CDI_FORMAT",
    show_envvar=True,
    help="Default: as --output is named, else yaml.",
)
@click.option(
    "--vendor",
    show_envvar=True,
    help="Vendor of the kind. Default: the mode's, nvidia.com.",
)
@click.option(
    "--class",
    "device_class",
    envvar="GPUHOOK_GENERATE_CDI_CLASS",
    show_envvar=True,
    help="Class of the kind. Default: the mode's, gpu.",
)
@click.option(
    "--device-name-strategy",
    metavar="|".join(device_selection.STRATEGIES),
    multiple=True,
    default=DEFAULT_STRATEGIES,
    callback=toolkit_switches.one_of(*device_selection.STRATEGIES),
    show_default=True,
    show_envvar=True,
    help="How devices are called: 0, GPU-<uuid>, gpu0, MIG instances 0:1, MIG-<uuid>, mig0:1; "
    "repeatable, or a comma list.",
)
@click.option(
    "--device-id",
    metavar="ID",
    multiple=True,
    callback=toolkit_switches.words,
    show_envvar=True,
    help="Describe only this GPU (index, UUID or PCI bus id) or MIG instance (0:1, UUID); "
    "none: all, without the device `all`; repeatable, or a comma list.",
)
@click.option(
    "--create-device-nodes",
    is_flag=True,
    show_envvar=True,
    help="Make the nodes below /dev/nvidia-caps that MIG instances lack.",
)
@click.option("--no-all-device", is_flag=True, show_envvar=True, help="Leave out the device `all`.")
@click.option(
    "--hooks",
    type=click.Choice(HOOKS),
    default="gpuhook",
    show_default=True,
    show_envvar=True,
    help="none: name no program of the host, for engines and hosts that run no hooks.",
)
@click.option(
    "--hook-path",
    metavar="PATH",
    show_envvar=True,
    help="Where gpuhook-hook is on the host. Default: that of this installation, for a node from"
    f" --inventory {DEFAULT_HOOK_PATH}.",
)
@click.option(
    "--driver-capabilities",
    "capabilities",
    metavar="LIST",
    callback=parameters.capabilities,
    envvar="GPUHOOK_GENERATE_CDI_DRIVER_CAPABILITIES",
    show_envvar=True,
    help="Only the files and nodes that these need (compute,utility,...). Default: those that "
    "request.driverCapabilities of the settings allows, all without it.",
)
@toolkit_switches.options
def generate_cdi(
    output: str | None,
    fmt: str | None,
    mode: str,
    config_search_path: tuple[str, ...],
    create_device_nodes: bool,
    **options: Any,
) -> None:
    """Describe a node's GPUs and driver as a CDI spec.

    A GPU in MIG mode is described by its instances, and not as a whole.

    Every container engine that reads CDI can then give its containers these GPUs, as can
    gpuhook-runtime: podman run --device nvidia.com/gpu=0 ...

    The variables NVIDIA_CTK_CDI_GENERATE_* of NVIDIA's toolkit are read too, after our own.
    """
    output = None if output == "-" else output
    node_of = {name: options.pop(name) for name in _NODE_OPTIONS}
    inventory, files_dir = node_of.pop("inventory"), options.pop("files_dir")
    csv = csv_options.take_csv_options(options, mode)
    if inventory is not None and (
        create_device_nodes
        or files_dir is not None
        or mode not in (mode_table.AUTO, mode_table.NVML)
    ):
        option = "--files-dir" if files_dir is not None else f"--mode {mode}"
        option = "--create-device-nodes" if create_device_nodes else option
        raise click.UsageError(
            f"{option} is of no use with --inventory, which has the GPUs and the driver of another "
            "node: leave one of them out"
        )
    place = replace(
        _place(node_of, config_search_path, create_nodes=create_device_nodes, **csv),
        files_dir=files_dir or site_rules.DIRECTORY,
    )
    is_here = inventory is None
    meant = mode_table.chosen(mode, place) if is_here else mode_table.NVML
    choices, notes = _choices(options, meant, place.roots.host, is_here=is_here)
    notes += csv_options.notes(csv, meant)
    if meant == mode_table.MANAGEMENT:
        _require_whole(choices, no_all=not choices.with_all, creates=create_device_nodes)
    fmt = spec_writer.format_of(output, fmt)
    if choices.coherent and output is None and fmt == "json":
        both = f"--feature-flag {toolkit_switches.COHERENT} and --format json without --output"
        raise toolkit_switches.contradiction(
            both, "that is more than one spec, and JSON is one document"
        )
    for note in [*notes, *_passed_over(files_dir, meant, choices)]:
        click.echo(f"note: {note}", err=True)
    found = _described(inventory, mode, place, choices)
    for warning in found.warnings:
        click.echo(f"warning: {warning}", err=True)
    specs = [found.spec, *(further for _, further in found.further)]
    for each in specs:
        validate.check(each, output or "standard output")
    if output is None:
        for each in specs:
            click.echo(spec_file.document(each, fmt), nl=False)
        return
    path = os.path.abspath(output)
    given = recorded_argv.recorded_argv(click.get_current_context(), "output")
    again = [*given, "--output", path] if is_here else None
    spec_writer.write(path, fmt, found, choices, again, files_dir=place.files_dir)
    console.say(f"wrote {path}: {found.spec['kind']} {spec_writer.names(found.spec)}")


_NODE_OPTIONS = (
    "inventory", "driver_root", "dev_root", "host_root", "nvml_library", "library_search_path",
)  # fmt: skip


def _passed_over(files_dir: str | None, mode: str, choices: Choices) -> Iterator[str]:
    """Yield sentences about what else the caller has said to no effect."""
    if files_dir is not None and mode not in mode_table.OF_DRIVER_FILES:
        yield f"--files-dir changes nothing in mode {mode}: it gives none of the driver's files"
    hook = toolkit_options.foreign_hook(click.get_current_context())
    if hook:
        yield f"{hook} is passed over: the hook of this spec is {choices.hook_path}"


def _place(
    node_of: dict[str, Any],
    config_search_path: tuple[str, ...],
    *,
    create_nodes: bool,
    **csv: Any,
) -> ModeRoots:
    roots = discover.roots(node_of["driver_root"], node_of["dev_root"], node_of["host_root"])
    return ModeRoots(
        roots=roots,
        nvml_library=node_of["nvml_library"],
        library_search_paths=node_of["library_search_path"],
        config_search_paths=config_search_path,
        create_nodes=create_nodes,
        **csv,
    )


def _described(inventory: str | None, mode: str, place: ModeRoots, choices: Choices) -> Described:
    """Return the spec, of a dump or of this machine; prints what is wrong with the node."""
    if inventory is not None:
        found = spec_of_node(load_node(inventory, warn_of_losses=False), choices)
    else:
        with console.progress("asking the driver"):
            found = mode_table.described(mode, place, choices)
        if found.node is not None:
            node_options.tell(found.node, place.roots.driver, warn_of_losses=False)
    return found


def _require_whole(choices: Choices, *, no_all: bool, creates: bool) -> None:
    """Raise GH1520 for an option that picks devices: mode management has but one."""
    for option, is_given in (
        ("--device-id", bool(choices.device_ids)),
        ("--no-all-device", no_all),
        ("--create-device-nodes", creates),
        (f"--feature-flag {toolkit_switches.COHERENT}", choices.coherent),
    ):
        if is_given:
            both = f"{option} and --mode {mode_table.MANAGEMENT}"
            raise toolkit_switches.contradiction(
                both, "its one device, all, is whatever nodes there are"
            )


def _choices(
    options: dict[str, Any], mode: str, host_root: str, *, is_here: bool
) -> tuple[Choices, list[str]]:
    """Return the checked choices, and sentences about what is passed over.

    Raises GH1510, GH1515 and what toolkit_switches.choices raises.
    """
    vendor, _, device_class = mode_table.KINDS[mode].partition("/")
    if options["vendor"] is None:
        options["vendor"] = vendor
    if options["device_class"] is None:
        options["device_class"] = device_class
    for option in ("vendor", "class"):
        value = options["vendor" if option == "vendor" else "device_class"]
        if not names.is_kind(f"{value}/x" if option == "vendor" else f"x/{value}"):
            raise fault("GH1510", option=option, value=value)
    hook_path = options["hook_path"] or (_installed_hook() if is_here else DEFAULT_HOOK_PATH)
    if not hook_path.startswith("/"):
        raise fault("GH1515", what="--hook-path", path=hook_path)
    switched, notes = toolkit_switches.choices(options, mode, is_here=is_here)
    ids = tuple(
        word for word in options["device_id"] if word not in ("none", device_selection.EVERY)
    )
    whole = Choices(
        vendor=options["vendor"],
        device_class=options["device_class"],
        strategies=options["device_name_strategy"],
        device_ids=() if device_selection.EVERY in options["device_id"] else ids,
        with_all=not options["no_all_device"] and "none" not in options["device_id"],
        hooks=options["hooks"],
        hook_path=hook_path,
        capabilities=options["capabilities"] or (_allowed() if is_here else None),
        host_root=os.path.abspath(host_root),
        **switched,
    )
    return whole, notes


def _allowed() -> frozenset[str] | None:
    """Return the capabilities that this node's containers may have, None for all of them.

    An engine that applies the spec by itself asks nobody. Raises GH1530 for broken settings.
    """
    return frozenset(settings_file.of_node().driver_capabilities) or None


def _installed_hook() -> str:
    """Return the path of this installation's gpuhook-hook, else of one in the usual places."""
    beside = os.path.dirname(os.path.abspath(sys.argv[0])) if "/" in sys.argv[0] else ""
    for directory in (beside, *state.PROGRAM_DIRS):
        path = os.path.join(directory, hook_args.HOOK_NAME)
        if directory and os.access(path, os.X_OK):
            return path
    return DEFAULT_HOOK_PATH
