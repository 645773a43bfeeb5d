# SPDX-License-Identifier: Apache-2.0
"""`gpuhook cdi show`: a spec, or one device of it, as a spec."""

from __future__ import annotations

import os

import click

from gpuhook.cdi import spec_file, spec_list
from gpuhook.cdi.hot import names
from gpuhook.cli.cdi.device_registry import device_registry
from gpuhook.cli.options import command_sections, parameters
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import Spec


@click.command(cls=command_sections.SectionedCommand)
@click.argument("name", metavar="NAME|FILE", callback=parameters.not_empty)
@parameters.spec_dir
@parameters.output("yaml", "json")
def show(name: str, spec_dir: tuple[str, ...], output: str) -> None:
    """Print the spec FILE, or the part of a spec that describes the device NAME.

    The output is a spec. For a device (vendor/class=device), it contains only that device and the
    edits that apply to all devices of the spec.
    """
    if names.split(name) is None:
        if not os.path.lexists(name):
            is_path = "=" not in name and ("/" in name or name.endswith((".yaml", ".json")))
            raise fault("GH1112" if is_path else "GH1101", name=name)
        found = spec_file.read(name)
        path = name
    else:
        found, path = _device(name, parameters.spec_dirs(spec_dir))
    if output == "yaml":
        click.echo(f"# {path}")
    click.echo(spec_file.document(found, output), nl=False)


def _device(name: str, dirs: list[str]) -> tuple[Spec, str]:
    """Return the spec of one device and the path of its file; GH1101 to GH1104."""
    specs = device_registry(name, dirs, spec_list.layers(dirs))
    held, edits = specs.device(name)
    found: Spec = {"cdiVersion": held.version, "kind": held.kind}
    found["devices"] = [{"name": name.partition("=")[2], "containerEdits": edits}]
    if held.edits:
        found["containerEdits"] = held.edits
    return found, held.path
