# SPDX-License-Identifier: Apache-2.0
"""`gpuhook config`: shows, checks, imports and compiles the settings of a node."""

from __future__ import annotations

import os

import click

from gpuhook.cli.options import command_sections, file_option, parameters
from gpuhook.errors import fault
from gpuhook.host import console
from gpuhook.host.hot import settings, state
from gpuhook.node import settings_file

SCHEMA = "gpuhook/config-origins/v1"


@click.group(cls=command_sections.Sentences)
def config() -> None:
    """Show, check and import the settings of this node."""


@config.command()
def path() -> None:
    """Print the path of the settings file."""
    click.echo(settings.path())


@config.command()
def default() -> None:
    """Print the default settings file: each key with its meaning and default.

    All keys are commented out: run gpuhook config default > /etc/gpuhook/config.yaml, then
    uncomment each key that you change.
    """
    click.echo(settings_file.shipped(), nl=False)


@config.command()
@click.option(
    "--origin",
    "is_with_origin",
    is_flag=True,
    help="Show the origin of each setting: default, a line of the file, or a variable.",
)
@parameters.output("yaml", "json")
def show(is_with_origin: bool, output: str) -> None:
    """Print the effective value of each setting, with defaults and environment.

    Without --origin, the output is a valid settings file.
    """
    from gpuhook.cli.node import settings_origins

    found = settings_origins.values(_read(settings.path()))
    _warn_of_variables()
    head = {"schema": SCHEMA} if is_with_origin else {}
    shown = settings_origins.document(found, with_origins=is_with_origin)
    console.document(head | shown, output)


@config.command()
@click.argument("file", required=False, callback=parameters.not_empty)
def validate(file: str | None) -> None:
    """Check FILE, by default this node's settings; the exit status is 1 if it is invalid."""
    where = file or settings.path()
    if file is None:
        settings.overridden(settings.Settings())  # GH1533
        _warn_of_variables()
    if not os.path.exists(where) and file is None:
        click.echo(f"{where}: absent, defaults apply")
        return
    if not os.path.exists(where):
        raise fault("GH1532", path=where, reason="the file does not exist")
    reason = settings_file.problem(where) or settings_file.unknown_keys(where)
    if reason:
        raise fault("GH1532", path=where, reason=reason)
    click.echo(f"{where}: valid")


@config.command(name="import", cls=file_option.OutputFileCommand)
@click.argument("file", metavar="FILE", callback=parameters.not_empty)
@file_option.output_file(
    "output",
    envvar=["GPUHOOK_CONFIG_IMPORT_OUTPUT_FILE", "GPUHOOK_CONFIG_IMPORT_OUTPUT"],
    show_envvar=True,
    help="Write the output to FILE, replacing it if it exists. Default: standard output.",
)
def import_file(file: str, output: str | None) -> None:
    """Convert FILE, the config.toml of NVIDIA's container toolkit, to gpuhook settings.

    Use - as FILE for standard input.

    The result contains each setting that differs from the default. For each key that cannot be
    converted, the line, the reason and the fix are printed to standard error. FILE is not changed.

    \b
    Example:
      gpuhook config import /etc/nvidia-container-runtime/config.toml \\
          --output-file /etc/gpuhook/config.yaml
    """  # noqa: D301 # click keeps the lines after this mark
    from gpuhook.config import toolkit_import

    found = toolkit_import.import_file(file)
    for remark in found.remarks:
        console.warn(f"{file}: {remark}")
    count = len(found.remarks)
    rest = f", {count} key{'s' * (count != 1)} not converted" if count else ""
    _write(toolkit_import.text(found, file), output, rest)


def _write(text: str, output: str | None, rest: str) -> None:
    """Print a text, or write it to a file and report that; `rest` ends the sentence."""
    from gpuhook.host import output_file

    if output is None:
        click.echo(text, nl=False)
        return
    output_file.write(output, text.encode(), 0o644)
    console.say(f"wrote {output}{rest}")


@config.command(name="compile", hidden=True)
@click.argument("file", callback=parameters.not_empty)
def compile_file(file: str) -> None:
    """Compile FILE for the runtime wrapper. If the file is invalid, its error is compiled."""
    found = os.stat(file)
    reason = settings_file.problem(file)
    document: dict[str, object] = {"error": reason} if reason else _warned(file)
    try:
        settings.store(file, found, document)
    except OSError:
        # The caller finds no compiled file and logs the reason.
        console.warn(str(fault("GH1105", path=file, directory=state.directory())))


def _warn_of_variables() -> None:
    from gpuhook.cli.node import settings_origins

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
    """Return the document, and warn about unknown keys on standard error."""
    unknown = settings_file.unknown_keys(where)
    if unknown:
        click.echo(f"warning: {where}: {unknown}", err=True)
    return settings_file.load(where)
