# SPDX-License-Identifier: Apache-2.0
"""`gpuhook configure users`: the containers that need gpuhook to start."""

from __future__ import annotations

from typing import Any

import click

from gpuhook.cli.engines import configure_options, engine_place
from gpuhook.cli.options import command_sections, parameters
from gpuhook.engines.configure.engine_plan import ENGINES
from gpuhook.host import console

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.state.dependent_containers import Stored

SCHEMA = "gpuhook/configure-users/v1"
HEADERS = ("ENGINE", "ID", "NAME", "RUNS", "WHY")


@click.command(cls=command_sections.SectionedCommand)
@click.argument(
    "engine", required=False, metavar="[ENGINE]", type=parameters.NearestChoice(ENGINES)
)
@configure_options.host_root
@parameters.output("table", "json", "yaml", "name", help="name: the ids of the containers.")
@parameters.no_headers
def users(engine: str | None, *, host_root: str, output: str, no_headers: bool) -> None:
    """List the containers of ENGINE, or of all engines, that need gpuhook.

    The engine's records for these containers refer to gpuhook's runtime or hook. Without gpuhook
    they cannot be started, and some cannot be stopped: remove them, or recreate them with another
    runtime, before you remove gpuhook from this node.

    \b
    Examples:
      gpuhook configure users
      gpuhook configure users docker -o name | xargs docker rm
    """  # noqa: D301 # click keeps the lines after this mark
    from gpuhook.engines.configure.host_files import Host
    from gpuhook.engines.state import dependent_containers

    home = engine_place.where_shown("podman", host_root).home
    with console.progress("reading the engines' containers"):
        found = [
            one
            for one in dependent_containers.dependent_containers(Host(host_root), home)
            if engine in {None, one.engine}
        ]
    if output in {console.JSON, console.YAML}:
        console.document(
            {"schema": SCHEMA, "containers": [_document(one) for one in found]}, output
        )
    elif output == "name":
        console.names(one.id for one in found)
    elif found:
        console.rows(HEADERS, [_row(one) for one in found], no_headers=no_headers)
    else:
        console.say("no container needs gpuhook")


def _document(one: Stored) -> dict[str, Any]:
    return {
        "engine": one.engine,
        "id": one.id,
        "name": one.name,
        "path": one.path,
        "why": one.why,
        "isRunning": one.is_running,
    }


def _row(one: Stored) -> tuple[str, ...]:
    return one.engine, one.id[:12], one.name, "yes" if one.is_running else "no", one.why
