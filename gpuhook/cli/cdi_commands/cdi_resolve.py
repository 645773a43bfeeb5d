# SPDX-License-Identifier: Apache-2.0
"""`gpuhook cdi resolve`: what CDI names result in, and what they would make of a config.json."""

from __future__ import annotations

import click

from gpuhook.apply.spec import oci_spec
from gpuhook.cdi import resolution, spec_list
from gpuhook.cdi.hot import registry
from gpuhook.cli.cdi_commands import edits_text
from gpuhook.cli.options import parameters, spec_directories
from gpuhook.errors import fault
from gpuhook.host import console, documents
from gpuhook.node import settings_file
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.resolution import Resolved

SCHEMA = "gpuhook/cdi-resolve/v1"


@click.command()
@click.argument("name", nargs=-1, required=True)
@click.option(
    "--oci",
    "config",
    metavar="FILE",
    help="Apply the edits to this config.json (- is standard input) and print what it becomes; "
    "FILE stays as it is.",
)
@spec_directories.option
@parameters.output("table", "json", "yaml")
@parameters.no_headers
def resolve(
    name: tuple[str, ...],
    config: str | None,
    spec_dir: tuple[str, ...],
    output: str,
    no_headers: bool,
) -> None:
    """Print the edits that the devices NAME result in, and which spec each is from.

    A NAME without a kind is of cdi.defaultKind. This is what an engine makes of these names, by
    CDI's rules alone; what gpuhook-runtime makes of a container, `gpuhook explain` tells.
    """
    dirs = spec_directories.chosen(spec_dir)
    kind = settings_file.of_node().default_kind or vocabulary.VOCABULARY.default_kind
    found = resolution.resolve(
        name, kind, registry.Registry(dirs, spec_list.layers(dirs), vocabulary.VENDOR)
    )
    if config is not None:
        click.echo(_applied(found, config), nl=False)
    elif output == "table":
        rows = [
            (what, said, part.path if not part.device else f"{part.device} of {part.path}")
            for part in found.parts
            for what, said in edits_text.rows(part.edits)
        ]
        console.rows(("EDIT", "WHAT", "FROM"), rows, no_headers=no_headers)
    else:
        console.document(_document(found), output)


def _document(found: Resolved) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "names": list(found.names),
        "parts": [
            {"path": part.path, "device": part.device, "containerEdits": part.edits}
            for part in found.parts
        ],
        "containerEdits": found.edits,
    }


def _applied(found: Resolved, config: str) -> str:
    """Return the text of a config.json with the edits; GH1300 to GH1303, GH1307 if that fails."""
    try:
        raw = documents.read(config)
    except FileNotFoundError as error:
        raise fault("GH1300", path=config) from error
    spec = oci_spec.parsed(documents.STANDARD_INPUT if config == "-" else config, raw)
    oci_spec.require_unambiguous(spec)
    oci_spec.apply(spec, found.edits)
    return documents.json_text(spec)
