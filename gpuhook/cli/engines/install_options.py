# SPDX-License-Identifier: Apache-2.0
"""The options and the report of `gpuhook node install` and `gpuhook node uninstall`."""

from __future__ import annotations

import os
from typing import Any

import click

from gpuhook.cli.options import parameters
from gpuhook.engines.configure import engine_restart
from gpuhook.host import console
from gpuhook.install import installation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.cli.options.parameters import F
    from gpuhook.engines.configure.configure_engine import EngineResult
    from gpuhook.install.installation import InstallOutcome

SCHEMA = "gpuhook/install/v1"


def host_root(**default: Any) -> Callable[[F], F]:
    """Return the option; `default` is `default` or `required` of click.option."""
    return parameters.host_root(
        type=click.Path(exists=True, file_okay=False),
        metavar="DIR",
        show_default=True,
        help="The directory where the host's root is mounted.",
        **default,
    )


install_dir = click.option(
    "--install-dir",
    callback=parameters.not_empty,
    default=installation.DIRECTORY,
    show_default=True,
    metavar="DIR",
    help="The installation directory of gpuhook on the host.",
)
restart = click.option(
    "--restart",
    type=click.Choice(engine_restart.HOWS),
    default="none",
    show_default=True,
    is_flag=False,
    flag_value="auto",
    help="How to make the engine reload its configuration; --restart without a value is auto.",
)


def show(
    done: InstallOutcome, output: str, directory: str, *, is_dry: bool, is_taken_away: bool
) -> None:
    """Print what was done."""
    if output != "text":
        console.document(_document(done, directory, is_dry=is_dry), output)
        return
    would = "would be " if is_dry else ""
    verb = "removed" if is_taken_away else "installed"
    if done.version not in done.kept and (done.version or done.is_new):
        word = f"{would}{verb}" if done.is_new else "already installed"
        click.echo(f"{directory}: {done.version or 'gpuhook'}: {word}")
    for one in done.engines:
        _show_engine(one, would)
    _show_kept(done, directory, is_taken_away=is_taken_away)
    for path in done.removed:
        click.echo(f"{path}: {would}removed")
    for note in done.notes:
        console.note(note)
    if is_taken_away and not (done.is_new or done.engines or done.removed):
        click.echo(f"nothing to do: gpuhook is not installed in {directory}")


def _show_engine(one: EngineResult, would: str) -> None:
    for write in one.writes:
        word = "removed" if write.after is None else "written"
        click.echo(f"{write.path}: {would}{word}")
    if not one.writes:
        click.echo(f"{one.engine}: already configured")
    if one.restarted:
        click.echo(f"{one.engine}: {one.restarted}")
    for note in one.notes:
        click.echo(f"note: {one.engine}: {note}", err=True)  # it may have several lines


def _show_kept(done: InstallOutcome, directory: str, *, is_taken_away: bool) -> None:
    for name in done.kept:
        why = "a container names it" if is_taken_away else "it was used before or was passed"
        why = "a container may need it" if done.unknown else why
        click.echo(f"{os.path.join(directory, 'versions', name)}: kept: {why}")
    for reason in done.unknown:
        console.note(f"every version is kept: {reason}")
    if is_taken_away and done.kept:
        then = "after these containers have exited"
        if done.unknown:
            then = "when the cause is fixed, or with --force if no container needs them"
        console.note(f"run `gpuhook node uninstall` again {then}")


def _document(done: InstallOutcome, directory: str, *, is_dry: bool) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "dryRun": is_dry,
        "directory": directory,
        "version": done.version,
        "changed": done.has_changed,
        "kept": list(done.kept),
        "unknown": list(done.unknown),
        "removed": list(done.removed),
        "notes": list(done.notes),
        "engines": [
            {
                "engine": one.engine,
                "files": [write.path for write in one.writes],
                "restarted": one.restarted,
                "notes": list(one.notes),
            }
            for one in done.engines
        ],
    }
