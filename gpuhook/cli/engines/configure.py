# SPDX-License-Identifier: Apache-2.0
"""`gpuhook configure`: registers gpuhook with container engines, shows that, and undoes it."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from gpuhook.cli.engines import configure_options, configure_users, engine_place
from gpuhook.cli.options import command_sections, parameters
from gpuhook.engines.configure import engine_plan, engine_restart
from gpuhook.engines.report import configure_text
from gpuhook.host import console

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.configure_engine import EngineResult


@click.group(cls=command_sections.Sentences)
def configure() -> None:
    """Register gpuhook with a container engine, and show or undo the registration.

    gpuhook parses each new file the way the engine does before replacing the old one, and
    keeps a backup: `gpuhook configure undo ENGINE` restores it byte for byte.

    \b
    Examples:
      gpuhook configure docker --dry-run
      gpuhook configure containerd --restart
      gpuhook configure undo containerd --restart
    """  # noqa: D301 # click keeps the lines after this mark


def _configure(engine: str, *, host_root: str, output: str, is_dry: bool, **options: Any) -> None:
    from gpuhook.engines.configure import configure_engine
    from gpuhook.engines.configure.host_files import Host

    host = Host(host_root)
    where = engine_place.where(
        engine,
        host_root,
        options.pop("config"),
        options.pop("drop_in"),
        is_of_user=options.pop("is_of_user", False),
    )
    how = options.pop("restart")
    options_of_engine, warnings = configure_options.engine_options(engine, host, **options)
    for sentence in warnings:
        console.warn(sentence)
    with console.progress(f"configuring {engine}"):
        result = configure_engine.configure(host, where, options_of_engine, how=how, is_dry=is_dry)
    _print(result, "configure", output, is_dry=is_dry)


for _name in engine_plan.ENGINES:
    configure.add_command(configure_options.engine_command(_name, partial(_configure, _name)))
configure.add_command(configure_users.users)


@configure.command(cls=configure_options.ConfigureCommand)
@click.argument("engine", metavar="ENGINE", type=parameters.NearestChoice(engine_plan.ENGINES))
@configure_options.of_user
@configure_options.restart
@configure_options.dry_run
@configure_options.host_root
@parameters.output("text", "json", "yaml")
def undo(
    engine: str,
    *,
    is_of_user: bool,
    restart: engine_restart.How,
    is_dry: bool,
    host_root: str,
    output: str,
) -> None:
    """Restore the files of ENGINE to their state before gpuhook configured it.

    If a file has been edited since, only gpuhook's changes are removed.

    \b
    Examples:
      gpuhook configure undo docker --dry-run
      gpuhook configure undo containerd --restart
    """  # noqa: D301 # click keeps the lines after this mark
    from gpuhook.engines.configure import configure_engine
    from gpuhook.engines.configure.host_files import Host

    where = engine_place.where(engine, host_root, is_of_user=is_of_user)
    with console.progress(f"restoring the files of {engine}"):
        result = configure_engine.undo(Host(host_root), where, how=restart, is_dry=is_dry)
    _print(result, "undo", output, is_dry=is_dry)


@configure.command()
@click.argument(
    "engine", metavar="[ENGINE]", type=parameters.NearestChoice(engine_plan.ENGINES), required=False
)
@configure_options.host_root
@parameters.no_headers
@parameters.output("table", "json", "yaml")
def show(engine: str | None, host_root: str, no_headers: bool, output: str) -> None:
    """Show the GPU runtimes of ENGINE, or of all engines on this host, and whether CDI is enabled.

    CONFIGURED shows whether gpuhook (according to its records) or another program configured the
    runtime.

    \b
    Examples:
      gpuhook configure show
      gpuhook configure show containerd -o json
    """  # noqa: D301 # click keeps the lines after this mark
    from gpuhook.engines.configure import engine_status
    from gpuhook.engines.configure.host_files import Host

    host = Host(host_root)
    names = (engine,) if engine else engine_plan.ENGINES
    found = [
        engine_status.engine_status(host, engine_place.where_shown(name, host_root))
        for name in names
    ]
    present = [one for one in found if engine or one.is_there]
    if output != "table":
        console.document(configure_text.shown_document(present), output)
        return
    if not present:
        console.say("this host has no engine configuration")
        return
    lines = [line for one in present for line in configure_text.lines(one)]
    console.rows(configure_text.HEADERS, lines, no_headers=no_headers)
    for sentence in configure_text.remarks(present):
        console.say(sentence)


def _print(result: EngineResult, command: str, output: str, *, is_dry: bool) -> None:
    if output != console.TEXT:
        console.document(configure_text.document(result, command, is_dry=is_dry), output)
        return
    if is_dry:
        click.echo(configure_text.difference_text(result.writes), nl=False)
    for sentence in configure_text.sentences(result, command, is_dry=is_dry):
        for line in sentence.split("\n"):  # nodeadm's NodeConfig has several
            console.say(line)
