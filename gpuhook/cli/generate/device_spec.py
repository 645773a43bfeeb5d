# SPDX-License-Identifier: Apache-2.0
"""generate-cdi for GPUs whose containers get device nodes alone."""

from __future__ import annotations

import os

import click
from click.core import ParameterSource

from gpuhook.cdi import spec_file, spec_notes, validate
from gpuhook.cli.generate import generate_argv, spec_writer, vendor_choice
from gpuhook.host import console, system_mounts
from gpuhook.node import settings_file
from gpuhook.vendors.spec_choices import SpecChoices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuhook.vendors.spec_choices import DescribedDevices


def generate(
    describe: Callable[[SpecChoices], DescribedDevices],
    *,
    output: str | None,
    fmt: str | None,
    **options: Any,
) -> None:
    """Write the spec to `output`, or to standard output; `options` are those of generate-cdi.

    Raises the faults of the vendor's description, GH1111 and GH1514.
    """
    fmt = spec_writer.format_of(output, fmt)
    choices = _choices(options)
    if choices.inventory is None:
        system_mounts.require()
    found = describe(choices)
    for warning in found.warnings:
        console.warn(warning)
    spec = found.spec
    if choices.inventory is None:
        spec = spec_notes.noted(spec, found.token, _words(), choices.newest)
    validate.check(spec, output or "standard output")
    if output is None:
        click.echo(spec_file.document(spec, fmt), nl=False)
        return
    path = os.path.abspath(output)
    spec_writer.write_spec(path, fmt, spec)
    console.say(f"wrote {path}: {spec['kind']} {spec_writer.names(spec)}")


def _choices(options: dict[str, Any]) -> SpecChoices:
    ids = [one for one in options["device_id"] if one not in ("none", "all")]
    host_root = os.path.abspath(options["host_root"])
    ctx = click.get_current_context()
    # The settings and the variables name the /dev of another vendor's driver container.
    is_named = ctx.get_parameter_source("dev_root") is ParameterSource.COMMANDLINE
    is_here = options["inventory"] is None
    return SpecChoices(
        inventory=options["inventory"],
        host_root=host_root,
        dev_root=os.path.abspath(ctx.params["dev_root"]) if is_named else host_root,
        device_ids=() if "all" in options["device_id"] else tuple(ids),
        with_all=not options["no_all_device"] and "none" not in options["device_id"],
        capabilities=options["capabilities"] or (_allowed() if is_here else None),
        newest=options["cdi_version"],
    )


def _allowed() -> frozenset[str] | None:
    """Return the capabilities that this node's settings allow, None for all of them."""
    return frozenset(settings_file.of_node().driver_capabilities) or None


def _words() -> list[str]:
    """Return the options of this call with which `gpuhook refresh` repeats it for its file."""
    ctx = click.get_current_context()
    others = {one.name or "" for one in ctx.command.params} - vendor_choice.OF_DEVICES
    return generate_argv.recorded_argv(ctx, "vendor", "output", "fmt", *others)
