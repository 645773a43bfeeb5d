# SPDX-License-Identifier: Apache-2.0
"""`gpuhook configure users`: which containers need gpuhook where they are."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from gpuhook.cli import parameters, printing
from gpuhook.engines.configuring.table import ENGINES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.stored import Stored

HEADERS = ("ENGINE", "ID", "NAME", "RUNS", "WHY")


@click.command()
@click.argument("engine", required=False, metavar="[ENGINE]", type=click.Choice(ENGINES))
@click.option(
    "--host-root",
    metavar="DIR",
    type=click.Path(file_okay=False, exists=True),
    default="/",
    show_default=True,
    envvar="GPUHOOK_HOST_ROOT",
    show_envvar=True,
    help="Where the host's files are, for who looks out of a container.",
)
@parameters.output("table", "json", "name", help="name: the ids of the containers.")
@parameters.no_headers
def users(engine: str | None, *, host_root: str, output: str, no_headers: bool) -> None:
    """List the containers that are kept by ENGINE, or by all, and need gpuhook.

    Those whose runtime or hook is gpuhook's by what engines have written down of them. Without it
    they are not started again, and some not even stopped: remove them, or make them anew with
    another runtime, before gpuhook leaves this node.

    \b
    Examples:
      gpuhook configure users
      gpuhook configure users docker -o name | xargs docker rm
    """  # noqa: D301 # click's own mark: what follows it keeps its lines
    from gpuhook.diagnose.node.tree import DirectoryTree
    from gpuhook.engines import stored

    home = None if os.geteuid() == 0 else os.environ.get("HOME")
    tree = DirectoryTree(host_root)
    try:
        found = [one for one in stored.found(tree, home) if engine in {None, one.engine}]
    finally:
        tree.close()
    if output == "json":
        printing.document({"containers": [asdict(one) for one in found]}, output)
    elif output == "name":
        printing.names(one.id for one in found)
    elif found:
        printing.rows(HEADERS, [_row(one) for one in found], no_headers=no_headers)
    else:
        printing.say("no container that is kept here needs gpuhook")


def _row(one: Stored) -> tuple[str, ...]:
    return one.engine, one.id[:12], one.name, "yes" if one.is_running else "no", one.why
