# SPDX-License-Identifier: Apache-2.0
"""`gpuhook config`: the settings file, checked and compiled for the hot path."""

from __future__ import annotations

import os

import click

from gpuhook import settings
from gpuhook.cli import parameters, printing, sections
from gpuhook.diagnose import settings_file
from gpuhook.errors import fault
from gpuhook.vendors.nvidia import words


@click.group(cls=sections.Sentences)
def config() -> None:
    """Show and check the settings of this node."""


@config.command()
def path() -> None:
    """Print the path of the settings file."""
    click.echo(settings.path())


@config.command()
@parameters.output("yaml", "json")
def show(output: str) -> None:
    """Print every setting as it counts now, defaults included."""
    chosen = settings.from_document(_read(settings.path()))
    chosen.default_kind = chosen.default_kind or words.VOCABULARY.default_kind
    document: dict[str, dict[str, object]] = {}
    for (section, key), attribute in settings.KEYS.items():
        document.setdefault(section, {})[key] = getattr(chosen, attribute)
    printing.document(document, output)


@config.command()
@click.argument("file", required=False)
def validate(file: str | None) -> None:
    """Check FILE (default: this node's settings); exit status 1 if it is wrong."""
    where = file or settings.path()
    if not os.path.exists(where) and file is None:
        click.echo(f"{where}: absent, defaults count")
        return
    if not os.path.exists(where):
        raise fault("GH1532", path=where, reason="there is no such file")
    reason = settings_file.problem(where) or settings_file.unknown_keys(where)
    if reason:
        raise fault("GH1532", path=where, reason=reason)
    click.echo(f"{where}: valid")


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
        click.echo(f"warning: {fault('GH1531', path=file)}", err=True)


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
