# SPDX-License-Identifier: Apache-2.0
"""`gpuhook configure users`: the engines and containers that need gpuhook."""

from __future__ import annotations

from typing import Any

import click

from gpuhook.cli.engines import configure_options, engine_place
from gpuhook.cli.options import command_sections, parameters
from gpuhook.engines.configure.engine_plan import ENGINES
from gpuhook.host import console

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.engines.configure.host_files import Host
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

    It also reports each engine that is still configured for gpuhook: undo that first.

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

    host = Host(host_root)
    home = engine_place.where_shown("podman", host_root).home
    with console.progress("reading the engines' containers"):
        found = [
            one
            for one in dependent_containers.dependent_containers(host, home)
            if engine in {None, one.engine}
        ]
    configured = _configured((engine,) if engine else ENGINES, host)
    if output in {console.JSON, console.YAML}:
        containers = [_document(one) for one in found]
        document = {"schema": SCHEMA, "containers": containers, "configuredEngines": configured}
        console.document(document, output)
        return
    for name in configured:
        console.say(f"{name} is configured for gpuhook: run gpuhook configure undo {name}")
    if output == "name":
        console.names(one.id for one in found)
    elif found:
        console.rows(HEADERS, [_row(one) for one in found], no_headers=no_headers)
    else:
        console.say("no container needs gpuhook")


def _configured(engines: Iterable[str], host: Host) -> list[str]:
    """Return the engines that gpuhook has configured, by its records. Raises OSError and GH2009."""
    from gpuhook.engines.configure.configure_record import RecordStore, directory

    configured = []
    for name in engines:
        home = engine_place.where_shown(name, host.root).home
        try:
            if RecordStore(host, directory(name, home)).load() is not None:
                configured.append(name)
        except PermissionError:
            console.say(f"{name}: only root can read whether gpuhook has configured it")
    return configured


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
