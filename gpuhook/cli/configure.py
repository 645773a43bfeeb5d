# SPDX-License-Identifier: Apache-2.0
"""`gpuhook configure`: gpuhook registered with container engines, shown, and taken back."""

from __future__ import annotations

from typing import Any

import click

from gpuhook.cli import configure_text, configure_users
from gpuhook.cli.options import command_sections, configure_options, parameters
from gpuhook.engines.configure import engine_plan, engine_restart
from gpuhook.host import console

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.configure_engine import EngineResult


@click.group(cls=command_sections.Sentences)
def configure() -> None:
    """Register gpuhook with a container engine, show it, and take it back.

    Every file is written whole, is read first as the engine will read it, and is kept as it was:
    `gpuhook configure undo ENGINE` gives it back byte for byte.

    \b
    Examples:
      gpuhook configure docker --dry-run
      gpuhook configure containerd --restart
      gpuhook configure undo containerd --restart
    """  # noqa: D301 # click's own mark: what follows it keeps its lines


@configure_options.of_the_engine("containerd")
def containerd(**options: Any) -> None:
    """Register the runtime with containerd, or CDI: that of Kubernetes, k3s and the like too."""
    _configure("containerd", **options)


@configure_options.of_the_engine("crio")
def crio(**options: Any) -> None:
    """Register the runtime with CRI-O, in a drop-in of its own."""
    _configure("crio", **options)


@configure_options.of_the_engine("docker")
def docker(**options: Any) -> None:
    """Register the runtime in Docker's daemon.json: a user's own where a user calls it."""
    _configure("docker", **options)


@configure_options.of_the_engine("podman")
def podman(**options: Any) -> None:
    """Register the hook, or the runtime, with Podman: a user's own where a user calls it."""
    _configure("podman", **options)


for _command in (containerd, crio, docker, podman, configure_users.users):
    configure.add_command(_command)


def _configure(engine: str, *, host_root: str, output: str, is_dry: bool, **options: Any) -> None:
    from gpuhook.engines.configure import configure_engine
    from gpuhook.engines.configure.host_files import Host

    host = Host(host_root)
    where = configure_options.where(
        engine, host_root, options.pop("config"), options.pop("drop_in")
    )
    how = options.pop("restart")
    wanted, warnings = configure_options.engine_options(engine, host, **options)
    for sentence in warnings:
        console.warn(sentence)
    result = configure_engine.configure(host, where, wanted, how=how, is_dry=is_dry)
    _tell(result, "configure", output, is_dry=is_dry)


@configure.command(cls=configure_options.ConfigureCommand)
@click.argument("engine", metavar="ENGINE", type=click.Choice(engine_plan.ENGINES))
@configure_options.restart
@configure_options.dry_run
@configure_options.host_root
@parameters.output("text", "json", "yaml")
def undo(
    engine: str, restart: engine_restart.How, is_dry: bool, host_root: str, output: str
) -> None:
    """Give ENGINE its files back as they were before it was configured first.

    Of a file that somebody has edited since, only what gpuhook had brought into it is taken out.

    \b
    Examples:
      gpuhook configure undo docker --dry-run
      gpuhook configure undo containerd --restart
    """  # noqa: D301 # click's own mark: what follows it keeps its lines
    from gpuhook.engines.configure import configure_engine
    from gpuhook.engines.configure.host_files import Host

    where = configure_options.where(engine, host_root)
    result = configure_engine.undo(Host(host_root), where, how=restart, is_dry=is_dry)
    _tell(result, "undo", output, is_dry=is_dry)


@configure.command()
@click.argument(
    "engine", metavar="[ENGINE]", type=click.Choice(engine_plan.ENGINES), required=False
)
@configure_options.host_root
@parameters.no_headers
@parameters.output("table", "json", "yaml")
def show(engine: str | None, host_root: str, no_headers: bool, output: str) -> None:
    """Show the runtimes that give containers GPUs, and CDI, of ENGINE or of all that are there.

    CONFIGURED says whose hand it was: gpuhook's, as its record has it, or another's.

    \b
    Examples:
      gpuhook configure show
      gpuhook configure show containerd -o json
    """  # noqa: D301 # click's own mark: what follows it keeps its lines
    from gpuhook.engines.configure import engine_status
    from gpuhook.engines.configure.host_files import Host

    host = Host(host_root)
    names = (engine,) if engine else engine_plan.ENGINES
    found = [
        engine_status.engine_status(host, configure_options.where(name, host_root))
        for name in names
    ]
    there = [one for one in found if engine or one.is_there]
    if output != "table":
        console.document(configure_text.shown_document(there), output)
        return
    if not there:
        console.say("there is no configuration of an engine here")
        return
    lines = [line for one in there for line in configure_text.lines(one)]
    console.rows(configure_text.HEADERS, lines, no_headers=no_headers)
    for sentence in configure_text.remarks(there):
        console.say(sentence)


def _tell(result: EngineResult, command: str, output: str, *, is_dry: bool) -> None:
    if output != console.TEXT:
        console.document(configure_text.document(result, command, is_dry=is_dry), output)
        return
    if is_dry:
        click.echo(configure_text.difference_text(result.writes), nl=False)
    for sentence in configure_text.sentences(result, command, is_dry=is_dry):
        console.say(sentence)
