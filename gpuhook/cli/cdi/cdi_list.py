# SPDX-License-Identifier: Apache-2.0
"""`gpuhook cdi`, and its commands list and compile."""

from __future__ import annotations

import os

import click

from gpuhook.cdi import spec_file, spec_list
from gpuhook.cdi.hot import compile as compiler
from gpuhook.cdi.hot import compiled_spec
from gpuhook.cli.cdi import cdi_resolve, cdi_show, cdi_transform, cdi_validate
from gpuhook.cli.options import command_sections, parameters
from gpuhook.errors import fault
from gpuhook.host import console

SCHEMA = "gpuhook/cdi-list/v1"
_GENERATE = "generate"


class _CdiGroup(command_sections.Sentences):
    """The commands on specs, with `generate-cdi` under the name that nvidia-ctk has."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return sorted([*super().list_commands(ctx), _GENERATE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, None for an unknown name."""
        if cmd_name == _GENERATE:  # it loads more than the other commands need
            from gpuhook.cli.generate.generate_cdi import generate_cdi

            return generate_cdi
        return super().get_command(ctx, cmd_name)


@click.group(cls=_CdiGroup)
def cdi() -> None:
    """List, show, check and transform the CDI specs of all vendors."""


cdi.add_command(cdi_resolve.resolve)
cdi.add_command(cdi_show.show)
cdi.add_command(cdi_transform.transform)
cdi.add_command(cdi_validate.validate)


@cdi.command(name="list")
@parameters.spec_dir
@parameters.output("table", "json", "yaml", "name")
@parameters.no_headers
def list_devices(spec_dir: tuple[str, ...], output: str, no_headers: bool) -> None:
    """List all CDI devices and the files that describe them."""
    dirs = parameters.spec_dirs(spec_dir)
    devices, broken = spec_list.devices(dirs)
    errors = [(source.path, source.error) for source in broken if source.error is not None]
    if output == "name":
        console.names(dict.fromkeys(device.name for device in devices))
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
        console.document(document, output)
        return
    rows = [(device.name, device.path, device.note) for device in devices]
    console.rows(("DEVICE", "SPEC", "NOTE"), rows, no_headers=no_headers)
    for _, error in errors:
        console.warn(f"{error.code}: {error.message}")
    if not devices:
        console.say(f"no CDI device in {', '.join(dirs)}: run gpuhook generate-cdi")


@cdi.command(name="compile", hidden=True)
@click.argument("path", nargs=-1, required=True, callback=parameters.not_empty)
def compile_files(path: tuple[str, ...]) -> None:
    """Compile specs for the runtime wrapper.

    If a spec is invalid, its error is printed and compiled.
    """
    for file in path:
        try:
            found = os.stat(file)
        except OSError as error:
            raise fault("GH1110", path=file, reason=error.strerror or error) from error
        compiled = compiler.compile_with(spec_file.parser(file), file, found)
        if compiled.error is not None:
            console.warn(f"{compiled.error.code}: {compiled.error.message}")
        elif compiled_spec.load(file, found) is None:
            # The wrapper detects this too, and logs it where the engine shows it.
            where = os.path.dirname(compiled_spec.compiled_path(file))
            console.warn(f"{file}: cannot store the compiled spec in {where}")
