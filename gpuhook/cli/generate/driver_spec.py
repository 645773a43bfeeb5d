# SPDX-License-Identifier: Apache-2.0
"""generate-cdi for GPUs whose containers get the files of the driver: the spec with these files."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

import click
from click.core import ParameterSource

from gpuhook.apply.rootfs import hook_args
from gpuhook.cdi import spec_file, validate
from gpuhook.cdi.hot import names
from gpuhook.cli.generate import (
    generate_argv,
    generate_cdi_options,
    spec_writer,
    toolkit_options,
    toolkit_switches,
    vendor_choice,
)
from gpuhook.cli.options import node_options
from gpuhook.cli.options.node_options import load_node
from gpuhook.errors import fault
from gpuhook.host import console, system_mounts
from gpuhook.host.hot import state
from gpuhook.node import driver_worker, settings_file
from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.nvidia.driver import site_rules
from gpuhook.vendors.nvidia.modes import mode_table
from gpuhook.vendors.nvidia.spec import device_selection
from gpuhook.vendors.nvidia.spec.generate_options import Choices, Described
from gpuhook.vendors.nvidia.spec.gpu_spec import describe as spec_of_node
from gpuhook.vendors.spec_choices import DEFAULT_HOOK_PATH

_WITHOUT_HOOK = (
    "this host has no gpuhook-hook, so the spec is written as with --hooks none: engines do not "
    "notice when it becomes stale; install gpuhook-runtime and regenerate the spec, or use "
    "--hook-path"
)

_SECONDS = 60.0  # without persistence mode, the driver initialises each GPU

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.vendors.nvidia.discover import Roots


def generate(output: str | None, fmt: str | None, mode: str, **options: Any) -> None:
    """Write the spec to `output`, or to standard output; `options` are those of generate-cdi.

    Raises what the driver and its files raise, and usage errors.
    """
    inventory, files_dir = options["inventory"], options["files_dir"]
    csv = generate_cdi_options.csv_choices(options, mode)
    is_here = inventory is None
    if is_here:
        system_mounts.require()
    else:
        _require_no_live_option(mode, files_dir, create_nodes=options["create_device_nodes"])
    where = discover.roots(
        options["driver_root"],
        options["dev_root"],
        options["host_root"],
        nvml_library=options["nvml_library"],
        library_search_paths=options["library_search_path"],
        config_search_paths=options["config_search_path"],
        files_dir=files_dir or site_rules.DIRECTORY,
    )
    meant = mode_table.chosen(mode, where) if is_here else mode_table.NVML
    choices, notes = _choices(options, csv, meant, is_here=is_here)
    notes += generate_cdi_options.csv_notes(csv, meant)
    if meant == mode_table.MANAGEMENT:
        _require_whole(choices)
    fmt = _format(output, fmt, choices)
    ignored = _ignored_options(files_dir, meant, choices, options["hook_path"])
    for note in [*notes, *ignored]:
        click.echo(f"note: {note}", err=True)
    found = _described(inventory, mode, where, choices)
    _write(found, choices, output, fmt, files_dir=where.files_dir, is_here=is_here)


def _require_no_live_option(mode: str, files_dir: str | None, *, create_nodes: bool) -> None:
    """Raise a usage error for an option that --inventory excludes."""
    option = ""
    if mode not in (mode_table.AUTO, mode_table.NVML):
        option = f"--mode {mode}"
    if files_dir is not None:
        option = "--files-dir"
    if create_nodes:
        option = "--create-device-nodes"
    if option:
        raise click.UsageError(
            f"{option} cannot be used with --inventory, which describes the GPUs and the driver of "
            "another node"
        )


def _format(output: str | None, fmt: str | None, choices: Choices) -> str:
    """Return the format of the output; GH1514, and GH1520 for several JSON documents."""
    chosen = spec_writer.format_of(output, fmt)
    if choices.coherent and output is None and chosen == "json":
        both = f"--feature-flag {toolkit_switches.COHERENT} and -o json without --output-file"
        reason = "that is more than one spec, but JSON is a single document"
        raise fault("GH1520", options=both, reason=reason)
    return chosen


def _write(
    found: Described,
    choices: Choices,
    output: str | None,
    fmt: str,
    *,
    files_dir: str,
    is_here: bool,
) -> None:
    """Check the specs, then write them to `output`, or to standard output."""
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
    ctx = click.get_current_context()
    left_out = ("output",) if vendor_choice.is_kind(ctx.params["vendor"]) else ("output", "vendor")
    given = generate_argv.recorded_argv(ctx, *left_out)
    argv = [*given, "--output-file", path] if is_here else None
    spec_writer.write(path, fmt, found, choices, argv, files_dir=files_dir)
    console.say(f"wrote {path}: {found.spec['kind']} {spec_writer.names(found.spec)}")


def _ignored_options(
    files_dir: str | None, mode: str, choices: Choices, hook_path: str | None
) -> Iterator[str]:
    """Yield a note on each option that has no effect."""
    if files_dir is not None and mode not in mode_table.OF_DRIVER_FILES:
        yield f"--files-dir has no effect in mode {mode}, which includes no driver files"
    if hook_path and choices.hooks == "none":
        yield "--hook-path has no effect with --hooks none"
    hook = toolkit_options.foreign_hook(click.get_current_context())
    if hook:
        yield f"{hook} is ignored: the hook of this spec is {choices.hook_path}"


def _described(inventory: str | None, mode: str, where: Roots, choices: Choices) -> Described:
    """Return the spec of a dump or of this machine, and print the warnings of the node."""
    if inventory is not None:
        found = spec_of_node(load_node(inventory, warn_of_losses=False), choices)
    else:
        with console.progress("asking the driver"):
            describe = partial(mode_table.described, mode, where, choices)
            found = driver_worker.call_driver(describe, _SECONDS)
        if found.node is not None:
            node_options.print_warnings(found.node, where.driver, warn_of_losses=False)
    return found


def _require_whole(choices: Choices) -> None:
    """Raise GH1520 for an option that selects devices: mode management has one device."""
    for option, is_given in (
        ("--device-id", bool(choices.device_ids)),
        ("--no-all-device", not choices.with_all),
        ("--create-device-nodes", choices.create_nodes),
        (f"--feature-flag {toolkit_switches.COHERENT}", choices.coherent),
    ):
        if is_given:
            both = f"{option} and --mode {mode_table.MANAGEMENT}"
            reason = "its only device, all, has every node of the host"
            raise fault("GH1520", options=both, reason=reason)


def _choices(
    options: dict[str, Any], csv: dict[str, Any], mode: str, *, is_here: bool
) -> tuple[Choices, list[str]]:
    """Return the checked choices, and notes on what has no effect.

    Raises GH1510, GH1515 and what toolkit_switches.choices raises.
    """
    of_mode = mode_table.KINDS[mode].partition("/")
    vendor = options["vendor"] if vendor_choice.is_kind(options["vendor"]) else of_mode[0]
    device_class = of_mode[2] if options["device_class"] is None else options["device_class"]
    if not names.is_kind(f"{vendor}/x"):
        raise fault("GH1510", option="vendor", value=vendor)
    if not names.is_kind(f"x/{device_class}"):
        raise fault("GH1510", option="class", value=device_class)
    hook_path = options["hook_path"] or (_installed_hook() if is_here else DEFAULT_HOOK_PATH)
    switched, notes = toolkit_switches.choices(options, mode, is_here=is_here)
    hooks = options["hooks"]
    if not hook_path:
        if hooks != "none" and mode in mode_table.OF_DRIVER_FILES:
            _require_no_hook_option()
            hooks, notes = "none", [*notes, _WITHOUT_HOOK]
        hook_path = DEFAULT_HOOK_PATH
    if not hook_path.startswith("/"):
        raise fault("GH1515", what="--hook-path", path=hook_path)
    ids = tuple(
        word for word in options["device_id"] if word not in ("none", device_selection.EVERY)
    )
    whole = Choices(
        vendor=vendor,
        device_class=device_class,
        strategies=options["device_name_strategy"],
        device_ids=() if device_selection.EVERY in options["device_id"] else ids,
        with_all=not options["no_all_device"] and "none" not in options["device_id"],
        hooks=hooks,
        hook_path=hook_path,
        capabilities=options["capabilities"] or (_allowed() if is_here else None),
        host_root=os.path.abspath(options["host_root"]),
        create_nodes=options["create_device_nodes"],
        **csv,
        **switched,
    )
    return whole, notes


def _allowed() -> frozenset[str] | None:
    """Return the capabilities that this node's settings allow, None for all of them.

    An engine that applies the spec itself checks no policy. Raises GH1530 for broken settings.
    """
    return frozenset(settings_file.of_node().driver_capabilities) or None


def _installed_hook() -> str:
    """Return the path of this installation's gpuhook-hook, else a usual one, "" without any.

    A wheel contains no gpuhook-hook.
    """
    beside = os.path.dirname(os.path.abspath(sys.argv[0])) if "/" in sys.argv[0] else ""
    for directory in (beside, *state.PROGRAM_DIRS):
        path = os.path.join(directory, hook_args.HOOK_NAME)
        if directory and os.access(path, os.X_OK):
            return path
    return ""


def _require_no_hook_option() -> None:
    """Raise GH1521 if an option or a setting asks for hooks: this host has no gpuhook-hook."""
    ctx = click.get_current_context()
    for option in ("hooks", "disable_hook", "enable_hook", "ldconfig_path"):
        if ctx.get_parameter_source(option) is not ParameterSource.DEFAULT:
            name = f"--{option.replace('_', '-')}"
            raise fault("GH1521", option=name, dirs=":".join(state.PROGRAM_DIRS))
