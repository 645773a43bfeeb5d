# SPDX-License-Identifier: Apache-2.0
"""`gpuhook generate-cdi`: a node as a CDI spec, for engines that read CDI and for the wrapper."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from gpuhook import settings, state
from gpuhook.cdi import cache, names, spec, validate
from gpuhook.cli import parameters, printing
from gpuhook.cli.node_options import load_node, node_options
from gpuhook.errors import fault
from gpuhook.vendors.nvidia import jobs, known_node, node_file, selection
from gpuhook.vendors.nvidia.spec import DEFAULT_HOOK_PATH, HOOKS, Choices, Described, describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory import Node


def _words(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a repeatable option whose values may be comma lists."""
    words = (word.strip() for value in values for word in value.split(","))
    found = tuple(dict.fromkeys(word for word in words if word))
    if values and not found:
        raise click.BadParameter("it is empty", ctx, param)
    return found


def _strategies(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    found = _words(ctx, param, values)
    for word in found:
        if word not in selection.STRATEGIES:
            known = ", ".join(selection.STRATEGIES)
            raise click.BadParameter(f"{word!r} is not one of {known}", ctx, param)
    return found


@click.command(name="generate-cdi")
@node_options
@click.option(
    "--output",
    metavar="FILE",
    show_envvar=True,
    help="Write FILE (*.yaml or *.json), atomically, and prepare it for the runtime wrapper. "
    "Default: standard output.",
)
@click.option(
    "--format",
    "fmt",
    type=click.Choice(spec.FORMATS),
    envvar="GPUHOOK_GENERATE_CDI_FORMAT",
    show_envvar=True,
    help="Default: as --output is named, else yaml.",
)
@click.option(
    "--vendor",
    default="nvidia.com",
    show_default=True,
    show_envvar=True,
    help="Vendor of the kind.",
)
@click.option(
    "--class",
    "device_class",
    default="gpu",
    show_default=True,
    envvar="GPUHOOK_GENERATE_CDI_CLASS",
    show_envvar=True,
    help="Class of the kind.",
)
@click.option(
    "--device-name-strategy",
    metavar="|".join(selection.STRATEGIES),
    multiple=True,
    default=("index", "uuid"),
    callback=_strategies,
    show_default=True,
    show_envvar=True,
    help="How devices are called: 0, GPU-<uuid>, gpu0, MIG instances 0:1, MIG-<uuid>, mig0:1; "
    "repeatable, or a comma list.",
)
@click.option(
    "--device-id",
    metavar="ID",
    multiple=True,
    callback=_words,
    show_envvar=True,
    help="Describe only this GPU (index, UUID or PCI bus id) or MIG instance (0:1, UUID); "
    "repeatable, or a comma list.",
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
    help="Only the files and nodes that these need (compute,utility,...). Default: all.",
)
def generate_cdi(
    output: str | None, fmt: str | None, create_device_nodes: bool, **options: Any
) -> None:
    """Describe a node's GPUs and driver as a CDI spec.

    A GPU in MIG mode is described by its instances, and not as a whole.

    Every container engine that reads CDI can then give its containers these GPUs, as can
    gpuhook-runtime: podman run --device nvidia.com/gpu=0 ...
    """
    node_of = {name: options.pop(name) for name in _NODE_OPTIONS}
    is_here = node_of["inventory"] is None
    if create_device_nodes and not is_here:
        raise click.UsageError("--create-device-nodes is of no use with --inventory")
    choices = _choices(options, node_of["host_root"], is_here=is_here)
    fmt = _format(output, fmt)
    node = load_node(**node_of, create_nodes=create_device_nodes, warn_of_losses=False)
    found = describe(node, choices)
    for warning in found.warnings:
        click.echo(f"warning: {warning}", err=True)
    validate.check(found.spec, output or "standard output")
    if output is None:
        click.echo(spec.document(found.spec, fmt), nl=False)
        return
    path = os.path.abspath(output)
    spec.write(found.spec, path, fmt)
    _prepare(path, found)
    if is_here:
        _remember(node, found, choices, path)
    devices = ", ".join(device["name"] for device in found.spec["devices"])
    printing.say(f"wrote {path}: {found.spec['kind']} {devices}")


_NODE_OPTIONS = (
    "inventory", "driver_root", "dev_root", "host_root", "nvml_library", "library_search_path",
)  # fmt: skip


def _choices(options: dict[str, Any], host_root: str, *, is_here: bool) -> Choices:
    """Return the checked choices; raises GH1510 and GH1515."""
    for option in ("vendor", "class"):
        value = options["vendor" if option == "vendor" else "device_class"]
        if not names.is_kind(f"{value}/x" if option == "vendor" else f"x/{value}"):
            raise fault("GH1510", option=option, value=value)
    hook_path = options["hook_path"] or (_installed_hook() if is_here else DEFAULT_HOOK_PATH)
    if not hook_path.startswith("/"):
        raise fault("GH1515", path=hook_path)
    return Choices(
        vendor=options["vendor"],
        device_class=options["device_class"],
        strategies=options["device_name_strategy"],
        device_ids=options["device_id"],
        with_all=not options["no_all_device"],
        hooks=options["hooks"],
        hook_path=hook_path,
        capabilities=options["capabilities"],
        host_root=os.path.abspath(host_root),
    )


def _installed_hook() -> str:
    """Return the path of this installation's gpuhook-hook, else of one in the usual places."""
    beside = os.path.dirname(os.path.abspath(sys.argv[0])) if "/" in sys.argv[0] else ""
    for directory in (beside, *state.PROGRAM_DIRS):
        path = os.path.join(directory, jobs.HOOK_NAME)
        if directory and os.access(path, os.X_OK):
            return path
    return DEFAULT_HOOK_PATH


def _format(output: str | None, fmt: str | None) -> str:
    """Return the format to write; GH1514 if engines would not read that file, or misread it."""
    if output is None:
        return fmt or "yaml"
    extension = os.path.splitext(output)[1][1:]
    if extension not in spec.FORMATS:
        raise fault("GH1514", path=output, reason="its name ends in neither .yaml nor .json")
    if fmt not in (None, extension):
        raise fault("GH1514", path=output, reason=f"it is named .{extension}, not .{fmt}")
    if os.path.isdir(output):
        raise fault("GH1514", path=output, reason="it is a directory")
    return extension


def _prepare(path: str, found: Described) -> None:
    """Keep the compiled form, under every name by which the wrapper may meet the file."""
    directory, name = os.path.split(path)
    cache.store(path, os.stat(path), found.spec)
    for other in settings.Settings().spec_dirs:
        # /var/run is a link to /run nearly everywhere.
        if other != directory and os.path.realpath(other) == os.path.realpath(directory):
            other_path = os.path.join(other, name)
            cache.store(other_path, os.stat(other_path), found.spec)


def _remember(node: Node, found: Described, choices: Choices, path: str) -> None:
    try:
        node_file.write(node, selection.aliases(found.gpus, choices.strategies), path)
    except OSError as error:
        reason = error.strerror or error
        click.echo(f"warning: {known_node.path()} was not written: {reason}", err=True)
