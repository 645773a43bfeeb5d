# SPDX-License-Identifier: Apache-2.0
"""`gpuhook config`: a node's settings shown, checked, taken over, compiled for the hot path."""

from __future__ import annotations

import os
from typing import Any

import click

from gpuhook.cli.options import command_sections, parameters
from gpuhook.errors import fault
from gpuhook.host import console
from gpuhook.host.hot import settings, state
from gpuhook.node import settings_file

SCHEMA = "gpuhook/config-origins/v1"


@click.group(cls=command_sections.Sentences)
def config() -> None:
    """Show, check and take over the settings of this node."""


@config.command()
def path() -> None:
    """Print the path of the settings file."""
    click.echo(settings.path())


@config.command()
def default() -> None:
    """Print the settings file that ships: every key, with what it means and its default.

    It sets nothing as it is: gpuhook config default > /etc/gpuhook/config.yaml, then take the mark
    away from what is to be another.
    """
    click.echo(settings_file.shipped(), nl=False)


@config.command()
@click.option(
    "--origin",
    "is_with_origin",
    is_flag=True,
    help="Say of each setting where it is from: default, a line of the file, a variable.",
)
@parameters.output("yaml", "json")
def show(is_with_origin: bool, output: str) -> None:
    """Print every setting as it counts now, defaults and environment included.

    What is printed is a settings file again; with --origin it is none.
    """
    from gpuhook.cli import settings_origins

    document = _read(settings.path())
    found = settings_origins.values(document)
    _warn_of_variables()
    shown: dict[str, Any] = settings_origins.plain(found)
    if is_with_origin:
        shown = {"schema": SCHEMA, **settings_origins.with_origins(found)}
    console.document(shown, output)


@config.command()
@click.argument("file", required=False)
def validate(file: str | None) -> None:
    """Check FILE (default: this node's settings); exit status 1 if it is wrong."""
    where = file or settings.path()
    if file is None:
        settings.overridden(settings.Settings())  # GH1533
        _warn_of_variables()
    if not os.path.exists(where) and file is None:
        click.echo(f"{where}: absent, defaults count")
        return
    if not os.path.exists(where):
        raise fault("GH1532", path=where, reason="there is no such file")
    reason = settings_file.problem(where) or settings_file.unknown_keys(where)
    if reason:
        raise fault("GH1532", path=where, reason=reason)
    click.echo(f"{where}: valid")


@config.command(name="import")
@click.argument("file", metavar="FILE")
@click.option(
    "--output",
    metavar="FILE",
    show_envvar=True,
    help="Write FILE, in place of one that is there. Default: standard output.",
)
def import_file(file: str, output: str | None) -> None:
    """Turn FILE, the config.toml of NVIDIA's container toolkit, into settings of gpuhook.

    The result sets what FILE sets otherwise than gpuhook's defaults. Of each key that cannot be
    taken over, standard error has the line, why not, and what to do. FILE stays as it is.

    \b
    Example:
      gpuhook config import /etc/nvidia-container-runtime/config.toml \\
          --output /etc/gpuhook/config.yaml
    """  # noqa: D301 # click's own mark: what follows it keeps its lines
    from gpuhook.config import toolkit_import

    found = toolkit_import.of_file(file)
    for remark in found.remarks:
        console.warn(f"{file}: {remark}")
    count = len(found.remarks)
    rest = f", {count} key{'s' * (count != 1)} not taken over" if count else ""
    _give(toolkit_import.text(found, file), output, rest)


def _give(text: str, output: str | None, rest: str) -> None:
    """Print a text, or write it to a file and say so; `rest` ends that sentence."""
    from gpuhook.host import output_file

    if output is None:
        click.echo(text, nl=False)
        return
    output_file.write(output, text.encode(), 0o644)
    console.say(f"wrote {output}{rest}")


@config.command(name="compile", hidden=True)
@click.argument("file")
def compile_file(file: str) -> None:
    """Compile FILE for the hot path; what is wrong with it is compiled too."""
    found = os.stat(file)
    reason = settings_file.problem(file)
    document: dict[str, object] = {"error": reason} if reason else _warned(file)
    try:
        settings.store(file, found, document)
    except OSError:
        # Who called finds no compiled form and says why in its own log.
        click.echo(f"warning: {fault('GH1105', path=file, directory=state.directory())}", err=True)


def _warn_of_variables() -> None:
    from gpuhook.cli import settings_origins

    for sentence in settings_origins.unknown_variables():
        console.warn(sentence)


def _read(where: str) -> dict[str, object]:
    if not os.path.exists(where):
        return {}
    reason = settings_file.problem(where)
    if reason:
        raise fault("GH1530", path=where, reason=reason)
    return _warned(where)


def _warned(where: str) -> dict[str, object]:
    """Return the document, after a word on standard error about keys that nobody reads."""
    unknown = settings_file.unknown_keys(where)
    if unknown:
        click.echo(f"warning: {where}: {unknown}", err=True)
    return settings_file.load(where)
