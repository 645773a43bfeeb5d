# SPDX-License-Identifier: Apache-2.0
"""`gpuhook cdi transform`: a spec with its paths moved to another root."""

from __future__ import annotations

import os
from typing import Any

import click

from gpuhook.apply.rootfs import hook_args
from gpuhook.cdi import spec_file, validate
from gpuhook.cdi.hot import spec_rules
from gpuhook.cdi.transform import CONTAINER, HOST, Move, TransformOptions, moved
from gpuhook.cli.generate import spec_writer
from gpuhook.cli.options import command_sections, file_option, parameters
from gpuhook.host import console, documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from gpuhook.cdi.hot.container_edits import Spec

    F = TypeVar("F", bound="Callable[..., Any]")

_OPTIONS = TransformOptions(hook_args.HOST_OPTIONS, hook_args.PATH_BEHIND, hook_args.PATH_BEFORE)


class _TransformGroup(command_sections.Sentences):
    command_class: type[click.Command] | None = file_option.OutputFileCommand


@click.group(cls=_TransformGroup)
def transform() -> None:
    """Move the paths of a spec to another root."""


def _absolute(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.startswith("/"):
        raise click.BadParameter(f"{value!r} is not an absolute path", ctx, param)
    return value


def _root(name: str, help_text: str, **settings: Any) -> Callable[[F], F]:
    return click.option(name, metavar="ROOT", callback=_absolute, help=help_text, **settings)


def _files(command: F) -> F:
    source = click.option(
        "--input",
        "source",
        metavar="FILE",
        default="-",
        callback=parameters.not_empty,
        show_default=True,
        help="The spec; - is standard input.",
    )
    target = file_option.output_file(
        "target",
        default="-",
        show_default=True,
        help="Write FILE (*.yaml or *.json), atomically; it may be the input. - is standard "
        "output.",
    )
    fmt = file_option.output_format(spec_file.FORMATS)
    return source(target(fmt(command)))


@transform.command()
@_root("--from", "The current root of the paths.", required=True)
@_root("--to", "The new root of the paths.", required=True)
@click.option(
    "--relative-to",
    type=click.Choice((HOST, CONTAINER)),
    default=HOST,
    show_default=True,
    help="The paths to move: host paths (nodes, mounted files, hooks) or container paths.",
)
@_files
def root(source: str, target: str, fmt: str | None, relative_to: str, **roots: str) -> None:
    """Move the paths below one root to another root.

    \b
    For a spec generated in a driver container that has the node's root mounted at /host:
      gpuhook cdi transform root --from /host --to / \\
          --input spec.yaml --output-file /etc/cdi/nvidia.yaml
    """  # noqa: D301 # click's own mark: what follows it keeps its lines
    _transform(source, target, fmt, (Move(roots["from"], roots["to"]),), relative_to)


@transform.command()
@_root("--driver-root", "The driver root with which the spec was generated.", default="/")
@_root("--target-driver-root", "The driver root as the engine sees it.", default="/")
@_root("--dev-root", "The dev root with which the spec was generated. Default: the driver root.")
@_root("--target-dev-root", "The dev root as the engine sees it. Default: the target driver root.")
@_files
def driver(source: str, target: str, fmt: str | None, **roots: str | None) -> None:
    """Move the driver's host paths: device nodes to one root, files to another."""
    before = str(roots["driver_root"])
    after = str(roots["target_driver_root"])
    devices = os.path.join(roots["dev_root"] or before, "dev")
    target_devices = os.path.join(roots["target_dev_root"] or after, "dev")
    moves = (Move(devices, target_devices), Move(before, after))
    _transform(source, target, fmt, moves, HOST)


def _transform(
    source: str, target: str, fmt: str | None, moves: tuple[Move, ...], relative_to: str
) -> None:
    fmt = spec_writer.format_of(None if target == "-" else target, fmt)
    found = moved(_read(source), moves, relative_to, options=_OPTIONS)
    validate.check(found, target if target != "-" else "standard output")
    if target == "-":
        click.echo(spec_file.document(found, fmt), nl=False)
        return
    spec_file.write(found, target, fmt)
    console.say(f"wrote {target}: {found['kind']}, {len(found['devices'])} devices")


def _read(source: str) -> Spec:
    """Return the valid spec of a file or of standard input; raises as spec_file.read()."""
    if source != "-":
        return spec_file.read(source)
    data = documents.read(source)
    found: Spec = spec_file.parse_yaml(data, documents.STANDARD_INPUT)  # JSON is YAML too
    spec_rules.check(found, documents.STANDARD_INPUT)
    return found
