# SPDX-License-Identifier: Apache-2.0
"""`gpuhook version` and `gpuhook help`."""

from __future__ import annotations

import os
import platform
import sys

import click

import gpuhook
from gpuhook.cli.options import command_sections, parameters
from gpuhook.host import console

SCHEMA = "gpuhook/version/v1"


@click.command(cls=command_sections.SectionedCommand)
@parameters.output("text", "json", "yaml")
def version(output: str) -> None:
    """Print the versions of gpuhook and of its Python."""
    found = {
        "version": gpuhook.__version__,
        "python": platform.python_version(),
        "interpreter": sys.executable,
        "package": os.path.dirname(gpuhook.__file__),
        "architecture": platform.machine(),
    }
    if output != "text":
        console.document({"schema": SCHEMA, **found}, output)
        return
    click.echo(f"gpuhook {found['version']}")
    for name in ("python", "interpreter", "package", "architecture"):
        click.echo(f"{name + ':':<14}{found[name]}")


@click.command(name="help", cls=command_sections.SectionedCommand)
@click.argument("command", nargs=-1)
@click.pass_context
def help_(ctx: click.Context, command: tuple[str, ...]) -> None:
    """Show the help of a command.

    COMMAND is one or more words, such as `cdi list`. Without COMMAND: the list of all commands.
    """
    shown = ctx.find_root()
    for name in command:
        group = shown.command
        found = group.get_command(shown, name) if isinstance(group, click.Group) else None
        if found is None:
            raise click.UsageError(f"No such command {' '.join(command)!r}.", ctx)
        shown = click.Context(found, info_name=name, parent=shown)
    click.echo(shown.get_help())
