# SPDX-License-Identifier: Apache-2.0
"""`gpuhook ps`: which container holds which GPU or replica."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from gpuhook.container import ledger
from gpuhook.diagnose import holdings, unseen
from gpuhook.programs.cli import parameters
from gpuhook.programs.cli.tables import table
from gpuhook.vendors.nvidia import known_node


@click.command()
@parameters.output(
    "table", "wide", "json", help="table shortens UUIDs and container ids, wide does not."
)
@click.option("--no-headers", is_flag=True, help="Leave out the header line of the table.")
def ps(output: str, no_headers: bool) -> None:
    """List the containers that hold GPUs: pod, GPUs, replicas, route, since when.

    Reads the ledger, which the runtime wrapper, the hooks, attach and detach write; entries of
    containers that are gone are removed while reading. Exit status 1 where nothing could be looked
    at.
    """
    missing, hidden = unseen.missing(), unseen.warnings()
    by_node = known_node.uuids()
    told = [holdings.of(entry, by_node) for entry in ledger.living()]
    held = [one for one in told if one["gpus"] or not one["withdrawn"]]
    _print(held, output, no_headers=no_headers)
    for warning in hidden:
        click.echo(f"warning: {warning}", err=True)
    if hidden and not held:
        raise click.exceptions.Exit(1)
    if not held and output != "json":
        yet = f": there is no {missing} yet" if missing else ""
        click.echo(f"no container holds a GPU that gpuhook gave{yet}", err=True)


def _print(held: list[dict[str, Any]], output: str, *, no_headers: bool) -> None:
    if output == "json":
        click.echo(json.dumps({"schema": "gpuhook/ps/v1", "containers": held}, indent=2))
        return
    headers = ("CONTAINER", "POD", "NAMESPACE", "GPUS", "REPLICAS", "ROUTE", "SINCE")
    rows = [_row(one, is_wide=output == "wide") for one in held]
    click.echo(table(None if no_headers else headers, rows), nl=False)


def _row(one: dict[str, Any], *, is_wide: bool) -> tuple[str, ...]:
    def shown(names: list[str]) -> str:
        return ",".join(names if is_wide else [_shortened(name) for name in names]) or "-"

    return (
        one["id"] if is_wide else one["id"][:12],
        one["pod"] or "-",
        one["namespace"] or "-",
        shown(one["gpus"]),
        shown(one["replicas"]),
        one["route"],
        _ago(time.time() - one["since"]),
    )


def _shortened(name: str) -> str:
    """Return a device or replica with the first group of its UUID only: GPU-3d2b7a51::0."""
    device, separator, number = name.partition("::")
    if device.startswith(("GPU-", "MIG-")) and device.count("-") == 5:
        device = "-".join(device.split("-")[:2])
    return device + separator + number


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return f"{max(0, int(seconds))}s ago"
