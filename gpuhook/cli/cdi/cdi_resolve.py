# SPDX-License-Identifier: Apache-2.0
"""`gpuhook cdi resolve`: the edits of CDI devices, also applied to a config.json."""

from __future__ import annotations

import click

from gpuhook.apply.spec import config_json, oci_spec
from gpuhook.cdi import resolution, spec_list
from gpuhook.cli.cdi.device_registry import device_registry
from gpuhook.cli.options import command_sections, parameters
from gpuhook.errors import fault
from gpuhook.host import console, documents
from gpuhook.node import settings_file
from gpuhook.vendors import catalogue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.cdi.hot.container_edits import ContainerEdits, DeviceNode, Hook, Mount
    from gpuhook.cdi.resolution import Resolved

SCHEMA = "gpuhook/cdi-resolve/v1"


@click.command(cls=command_sections.SectionedCommand)
@click.argument("name", nargs=-1, required=True, callback=parameters.not_empty)
@click.option(
    "--oci",
    "config",
    metavar="FILE",
    callback=parameters.not_empty,
    help="Apply the edits to this config.json (- is standard input) and print the result; FILE "
    "is not changed.",
)
@parameters.spec_dir
@parameters.output("table", "json", "yaml")
@parameters.no_headers
def resolve(
    name: tuple[str, ...],
    config: str | None,
    spec_dir: tuple[str, ...],
    output: str,
    no_headers: bool,
) -> None:
    """Print the container edits for the devices NAME, and the spec that each edit comes from.

    If NAME has no kind, cdi.defaultKind applies. These are the edits that an engine applies by
    the CDI rules. `gpuhook explain` shows what gpuhook-runtime would do.
    """
    dirs = parameters.spec_dirs(spec_dir)
    kind = settings_file.of_node().default_kind or catalogue.default_kind()
    layers = spec_list.layers(dirs)
    found = resolution.resolve(name, kind, lambda one: device_registry(one, dirs, layers))
    if config is not None:
        click.echo(_edited_config(found, config), nl=False)
    elif output == "table":
        rows = [
            (what, said, part.path if not part.device else f"{part.device} of {part.path}")
            for part in found.parts
            for what, said in _edit_rows(part.edits)
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


def _edited_config(found: Resolved, config: str) -> str:
    """Return the text of a config.json with the edits; GH1300 to GH1303, GH1307, or GH1308."""
    try:
        raw = documents.read(config)
    except FileNotFoundError as error:
        raise fault("GH1300", path=config) from error
    spec = config_json.parsed(documents.STANDARD_INPUT if config == "-" else config, raw)
    config_json.require_unambiguous(spec)
    oci_spec.apply(spec, found.edits)
    return documents.json_text(spec)


_ALL_ACCESS = "rwm"
_MOST = 80  # characters of a hook's arguments


def _edit_rows(edits: ContainerEdits) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of each edit, in the order of the CDI specification."""
    for entry in edits.get("env") or ():
        yield "env", entry
    for node in edits.get("deviceNodes") or ():
        yield "node", _node(node)
    for mount in edits.get("mounts") or ():
        yield "mount", _mount(mount)
    for hook in edits.get("hooks") or ():
        yield "hook", _hook(hook)
    for gid in edits.get("additionalGids") or ():
        yield "group", str(gid)
    for key, value in (edits.get("intelRdt") or {}).items():
        yield "rdt", f"{key}={value}"
    for device in edits.get("netDevices") or ():
        yield "network", f"{device.get('hostInterfaceName')} -> {device.get('name')}"


def _node(node: DeviceNode) -> str:
    source = node.get("hostPath")
    place = f"{source} -> {node['path']}" if source and source != node["path"] else node["path"]
    number = f" {node['major']}:{node.get('minor', 0)}" if node.get("major") else ""
    return f"{place}{number} {node.get('permissions') or _ALL_ACCESS}"


def _mount(mount: Mount) -> str:
    source, place = mount["hostPath"], mount["containerPath"]
    where = place if source == place else f"{source} -> {place}"
    return " ".join([where, ",".join(mount.get("options") or ())]).rstrip()


def _hook(hook: Hook) -> str:
    """Return the hook with its first arguments: gpuhook's hook names all libraries."""
    arguments = (hook.get("args") or ())[1:]
    shown: list[str] = []
    length = 0
    for argument in arguments:
        length += len(argument) + 1
        if length > _MOST:
            rest = len(arguments) - len(shown)
            shown.append(f"... and {rest} argument{'s' * (rest != 1)} more (-o json shows all)")
            break
        shown.append(argument)
    return " ".join([hook["hookName"], hook["path"], *shown])
