# SPDX-License-Identifier: Apache-2.0
"""`gpuhook cdi`: the CDI specs of this host listed, checked and compiled."""

from __future__ import annotations

import os

import click

from gpuhook.cdi import cache, listing, spec, validate
from gpuhook.cdi import compile as compiler
from gpuhook.cli import parameters, printing, sections
from gpuhook.diagnose import settings_file
from gpuhook.errors import GpuhookError, fault

SCHEMA = "gpuhook/cdi-list/v1"


@click.group(cls=sections.Sentences)
def cdi() -> None:
    """List and check the CDI specs of this host."""


@cdi.command(name="list")
@click.option(
    "--spec-dir",
    type=click.Path(file_okay=False),
    multiple=True,
    show_envvar=True,
    help="A directory of specs, lowest priority first; repeatable. "
    "Default: cdi.specDirs of the settings (/etc/cdi, /var/run/cdi).",
)
@parameters.output("table", "json", "yaml", "name")
@parameters.no_headers
def list_devices(spec_dir: tuple[str, ...], output: str, no_headers: bool) -> None:
    """List every CDI device and the file that describes it."""
    dirs = list(spec_dir) or _spec_dirs()
    devices, broken = listing.devices(dirs)
    errors = [(source.path, source.error) for source in broken if source.error is not None]
    if output == "name":
        printing.names(dict.fromkeys(device.name for device in devices))
        return
    if output != "table":
        document = {
            "schema": SCHEMA,
            "devices": [
                {"name": device.name, "path": device.path, "note": device.note}
                for device in devices
            ],
            "broken": [
                {"path": path, "code": error.code, "message": error.message}
                for path, error in errors
            ],
        }
        printing.document(document, output)
        return
    rows = [(device.name, device.path, device.note) for device in devices]
    printing.rows(("DEVICE", "SPEC", "NOTE"), rows, no_headers=no_headers)
    for _, error in errors:
        click.echo(f"warning: {error.code}: {error.message}", err=True)
    if not devices:
        printing.say(f"no CDI device in {', '.join(dirs)}: see gpuhook generate-cdi")


@cdi.command(name="validate")
@click.argument("path", nargs=-1, required=True)
@click.pass_context
def validate_files(ctx: click.Context, path: tuple[str, ...]) -> None:
    """Check spec files; exit status 1 if one is wrong."""
    valid = [_is_valid(file) for file in path]
    ctx.exit(0 if all(valid) else 1)


def _is_valid(path: str) -> bool:
    """Say what is wrong with the spec at `path`, or that nothing is."""
    try:
        found = spec.read(path)
        validate.check(found, path)
    except GpuhookError as error:
        click.echo(f"Error {error.code}: {error.message}\nhint: {error.hint}", err=True)
        return False
    count = len(found["devices"])
    head = f"{path}: valid, cdiVersion {found['cdiVersion']}, {found['kind']}"
    click.echo(f"{head}, {count} device{'s' * (count != 1)}")
    return True


@cdi.command(name="compile", hidden=True)
@click.argument("path", nargs=-1, required=True)
def compile_files(path: tuple[str, ...]) -> None:
    """Compile specs for the hot path; what is wrong with one is compiled too, and said."""
    for file in path:
        try:
            found = os.stat(file)
        except OSError as error:
            raise fault("GH1110", path=file, reason=error.strerror or error) from error
        compiled = compiler.compile_with(spec.parser(file), file, found)
        if compiled.error is not None:
            click.echo(f"warning: {compiled.error.code}: {compiled.error.message}", err=True)
        elif cache.load(file, found) is None:
            # The wrapper finds this out for itself, and says so where the engine sees it.
            where = os.path.dirname(cache.compiled_path(file))
            click.echo(f"warning: {file}: nothing can be kept in {where}", err=True)


def _spec_dirs() -> list[str]:
    return settings_file.of_node().spec_dirs
