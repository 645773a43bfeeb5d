# SPDX-License-Identifier: Apache-2.0
"""The specs of one vendor's GPUs: generate-cdi's options for the vendor, and its files."""

from __future__ import annotations

import os

import click
from click.core import ParameterSource

from gpuhook.cdi import spec_file, validate
from gpuhook.cli.generate import generate_argv, spec_writer, toolkit_options, vendor_choice
from gpuhook.cli.options import node_log
from gpuhook.errors import fault
from gpuhook.host import console, system_mounts
from gpuhook.node import settings_file
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.spec_call import SpecOptions, WrongOptionsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.vendors.interfaces.vendor_interface import Vendor
    from gpuhook.vendors.spec_call import DescribedSpecs, SpecCall

_NO_DEVICE, _EVERY_DEVICE = "none", "all"  # of --device-id


def generate(vendor: Vendor, /, *, output: str | None, fmt: str | None, **options: Any) -> None:
    """Write the specs to `output`, or to standard output; `options` are those of generate-cdi.

    Raises the faults of the vendor, GH1111, GH1514 and usage errors.
    """
    is_here = options["inventory"] is None
    if is_here:
        system_mounts.require()
    try:
        call = vendor.spec_call(_spec_options(vendor, options))
    except WrongOptionsError as error:
        raise click.UsageError(str(error)) from error
    fmt = _format(output, fmt, call)
    for note in call.notes:
        console.note(note)
    if is_here:
        with console.progress("asking the driver"):
            found = call.describe()
    else:
        found = call.describe()
    if found.facts:
        node_log.log_node(found.facts)
    _write(found, output, fmt)


def _spec_options(vendor: Vendor, options: dict[str, Any]) -> SpecOptions:
    ctx = click.get_current_context()
    ids: tuple[str, ...] = options["device_id"]
    chosen = tuple(one for one in ids if one not in (_NO_DEVICE, _EVERY_DEVICE))
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
    given = {name for name, one in sources.items() if one is not ParameterSource.DEFAULT}
    named = {name for name, one in sources.items() if one is ParameterSource.COMMANDLINE}
    return SpecOptions(
        inventory=options["inventory"],
        host_root=os.path.abspath(options["host_root"]),
        dev_root=options["dev_root"],
        device_ids=() if _EVERY_DEVICE in ids else chosen,
        with_all=not options["no_all_device"] and _NO_DEVICE not in ids,
        capabilities=options["capabilities"] or _allowed(options["inventory"]),
        vendor=options["vendor"] if vendor_choice.is_kind(options["vendor"]) else "",
        own={name: options[name] for name in vendor.own_options},
        given=frozenset(given),
        named=frozenset(named),
        words=tuple(_words(ctx, vendor)),
        foreign_hook=toolkit_options.foreign_hook(ctx),
    )


def _allowed(inventory: str | None) -> frozenset[str] | None:
    """Return the capabilities that this node's settings allow, None for all of them.

    An engine that applies the spec itself checks no policy. Raises GH1530 for broken settings.
    """
    if inventory is not None:
        return None
    return frozenset(settings_file.of_node().driver_capabilities) or None


def _words(ctx: click.Context, vendor: Vendor) -> list[str]:
    """Return the options of this call with which `gpuhook refresh` repeats it for its file."""
    others = {name for one in vendors() for name in one.own_options} - vendor.own_options
    return generate_argv.recorded_argv(ctx, "vendor", "output", "fmt", *others)


def _format(output: str | None, fmt: str | None, call: SpecCall) -> str:
    """Return the format of the output; GH1514, and GH1520 for several JSON documents."""
    chosen = spec_writer.format_of(output, fmt)
    if call.several and output is None and chosen == "json":
        both = f"{call.several} and -o json without --output-file"
        reason = "that is more than one spec, but JSON is a single document"
        raise fault("GH1520", options=both, reason=reason)
    return chosen


def _write(found: DescribedSpecs, output: str | None, fmt: str) -> None:
    """Check the specs, then write them to `output`, or to standard output."""
    for warning in found.warnings:
        console.warn(warning)
    specs = [found.spec, *(further for _, further in found.further)]
    for each in specs:
        validate.check(each, output or "standard output")
    if output is None:
        for each in specs:
            click.echo(spec_file.document(each, fmt), nl=False)
        return
    path = os.path.abspath(output)
    spec_writer.write(path, fmt, found)
