# SPDX-License-Identifier: Apache-2.0
"""`gpuhook inventory`: the GPUs and the drivers of this node, or of a dump."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import click

from gpuhook.cli.options import command_sections, node_log, parameters
from gpuhook.cli.options.node_options import node_options
from gpuhook.errors import GpuhookError
from gpuhook.host import console, system_mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.vendors.interfaces.vendor_interface import Vendor
    from gpuhook.vendors.vendor_inventory import NodePlace, VendorInventory


@click.command(cls=command_sections.SectionedCommand)
@node_options
@parameters.output(
    "table",
    "json",
    "yaml",
    "name",
    help="table: the GPUs; json, yaml: all facts, as a dump for --inventory; name: the ids.",
)
@parameters.no_headers
def inventory(output: str, no_headers: bool, inventory: str | None, **options: Any) -> None:
    """Show the drivers and the GPUs of a node with their parts, or dump all facts.

    Parts are MIG instances and partitions.
    A dump works on any machine: gpuhook generate-cdi --inventory FILE.
    """
    found = list(_of_this_node(**options) if inventory is None else _of_file(inventory))
    source = inventory or options["driver_root"]
    for one in found:
        node_log.log_node({"source": source, **one.facts})
    for one in found:
        for warning in one.warnings:
            console.warn(warning)
    if output == "table":
        _print(found, no_headers=no_headers)
    elif output == "name":
        console.names(name for one in found for name in one.ids)
    else:
        _dump(found, output)


def _of_file(name: str) -> Iterator[VendorInventory]:
    """Yield what each vendor has in a dump or profile."""
    from gpuhook.vendors import inventory_file
    from gpuhook.vendors.catalogue import vendors

    file = inventory_file.path(name)
    document = inventory_file.load(file)
    for vendor in vendors():
        one = vendor.dumped_inventory(document, file)
        if one is not None:
            yield one


def _of_this_node(
    driver_root: str,
    dev_root: str | None,
    host_root: str,
    nvml_library: str | None,
    library_search_path: tuple[str, ...],
) -> list[VendorInventory]:
    """Return what each vendor has on a node. Raises a fault if no vendor can be read.

    The fault of a vendor without GPUs on a node that has GPUs of another one is left out.
    """
    from gpuhook.vendors.catalogue import vendors
    from gpuhook.vendors.vendor_inventory import NodePlace

    system_mounts.require()
    dev = None if dev_root is None else os.path.abspath(dev_root)
    roots = (driver_root, dev, os.path.abspath(host_root))
    place = NodePlace(*roots, nvml_library, library_search_path)
    found: list[VendorInventory] = []
    faults: list[tuple[Vendor, GpuhookError]] = []
    with console.progress("asking the driver"):
        for vendor in vendors():
            try:
                one = _read(vendor, place)
            except GpuhookError as error:
                faults.append((vendor, error))
                continue
            found += [] if one is None else [one]
    if faults and not found:
        troubles = [trouble for vendor, trouble in faults if not vendor.absence(host_root)]
        raise (troubles or [faults[0][1]])[0]
    for vendor, trouble in faults:
        if not vendor.absence(host_root):
            console.warn(f"{vendor.title}: {trouble}")
    return found


def _read(vendor: Vendor, place: NodePlace) -> VendorInventory | None:
    """Return the inventory of a vendor, whose driver has a deadline to answer."""
    from gpuhook.vendors import driver_worker

    ask = partial(vendor.read_inventory, place)
    return driver_worker.call_driver(ask, no_answer=vendor.no_answer)


def _dump(found: list[VendorInventory], form: str) -> None:
    from gpuhook.vendors import inventory_file
    from gpuhook.vendors.inventory_document import SCHEMA

    document: dict[str, Any] = {"schema": SCHEMA}
    for one in found:
        document |= one.part
    click.echo(inventory_file.text(document, form), nl=False)


def _print(found: list[VendorInventory], *, no_headers: bool) -> None:
    """Print the driver of each vendor and its tables."""
    left_out: list[str] = []
    for number, one in enumerate(found):
        if not no_headers:
            click.echo(("\n" if number else "") + one.summary)
            if not one.tables[0].rows:
                click.echo("\nNo GPUs.")
        for table in one.tables:
            if not table.rows:
                continue
            if not no_headers:
                click.echo()
            text, others = console.table_text(
                table.headers, table.rows, no_headers=no_headers, order=one.most_important
            )
            click.echo(text, nl=False)
            left_out += others
    console.say_left_out(left_out)
