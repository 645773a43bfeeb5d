# SPDX-License-Identifier: Apache-2.0
"""`gpuhook ps`: which container holds which GPU or replica."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from gpuhook.container import ledger
from gpuhook.diagnose import holdings
from gpuhook.programs.cli.tables import table


@click.command()
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
@click.option("--no-headers", is_flag=True, help="Leave out the header line of the table.")
def ps(output: str, no_headers: bool) -> None:
    """List the containers that hold GPUs: pod, GPUs, replicas, route, since when.

    Reads the ledger that the runtime wrapper and the hook keep; entries of containers that are
    gone are removed while reading.
    """
    held = [holdings.of(entry) for entry in ledger.living()]
    if output == "json":
        click.echo(json.dumps({"schema": "gpuhook/ps/v1", "containers": held}, indent=2))
        return
    headers = ("CONTAINER", "POD", "NAMESPACE", "GPUS", "REPLICAS", "ROUTE", "SINCE")
    click.echo(table(None if no_headers else headers, [_row(one) for one in held]), nl=False)
    if not held:
        click.echo("no container holds a GPU that gpuhook gave", err=True)


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        one["id"][:24],
        one["pod"] or "-",
        one["namespace"] or "-",
        ",".join(one["gpus"]) or "-",
        ",".join(one["replicas"]) or "-",
        one["route"],
        _ago(time.time() - one["since"]),
    )


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return f"{max(0, int(seconds))}s ago"
