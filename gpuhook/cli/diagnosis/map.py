# SPDX-License-Identifier: Apache-2.0
"""`gpuhook map`: a picture of the node's GPUs in the terminal, as SVG or as HTML."""

from __future__ import annotations

import os
import shutil
import time
from typing import Any

import click

from gpuhook.cli.diagnosis import screen, usage_options
from gpuhook.cli.options import command_sections, node_options, parameters
from gpuhook.cli.options import container_options as options
from gpuhook.errors import printable
from gpuhook.host import console, output_file
from gpuhook.host.terminal import terminal_features
from gpuhook.map import map_drawing, map_page, map_svg, map_terminal
from gpuhook.usage import node_usage, usage_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.map.map_model import Picture
    from gpuhook.usage.node_usage import NodeUsage

_STANDARD_OUTPUT = "-"
_MAX_LINE = 4096
_FILE = click.Path(dir_okay=False, allow_dash=True)


@click.command(
    name="map",
    cls=command_sections.SectionedCommand,
    epilog="\b\nExamples:\n"
    "  gpuhook map\n"
    "  gpuhook map --watch\n"
    "  gpuhook map --html node.html\n"
    "  gpuhook map --inventory a100-mig --svg empty.svg\n"
    "  gpuhook map --inventory mi300x-cpx",
)
@click.option(
    "--svg",
    metavar="FILE",
    type=_FILE,
    callback=parameters.not_empty,
    help="Write the picture as SVG; - prints it.",
)
@click.option(
    "--html",
    metavar="FILE",
    type=_FILE,
    callback=parameters.not_empty,
    help="Write a self-contained page with the picture and a table; - prints it.",
)
@click.option("--ascii", "is_ascii", is_flag=True, help="Use only the characters + - | #.")
@click.option(
    "--width",
    type=click.IntRange(min=map_terminal.NARROWEST),
    metavar="COLUMNS",
    help="The width of the picture in the terminal. Default: the width of the terminal.",
)
@screen.options
@usage_options.options
@options.state_root
@node_options.inventory
@node_options.library_options
def map_(
    *,
    svg: str | None,
    html: str | None,
    is_ascii: bool,
    width: int | None,
    watch: bool,
    interval: float,
    inventory: str | None,
    **asked: Any,
) -> None:
    """Draw the GPUs of this node, their memory, and the containers that use them.

    The bar of a GPU is divided into its MIG instances or partitions by their memory, and the GPU or
    each part into its replicas. A cell shows the name and the image of its container, and the
    memory in use; "!" marks a container above its fair share (see `gpuhook ps --help`).
    --inventory draws another node, without containers.

    The data comes from the ledger, the state of the runtimes, the driver and the kubelet, as far
    as they are available.
    """
    if watch and (svg or html or inventory):
        raise click.UsageError("--watch cannot be used with --svg, --html and --inventory")
    if is_ascii and (svg is not None or html is not None):
        raise click.UsageError("--ascii cannot be used with --svg and --html")
    if svg is not None and html is not None and _same(svg, html):
        raise click.UsageError("--svg and --html name the same file")
    if inventory is not None:
        _show(_empty(inventory), svg, html, is_ascii=is_ascii, width=width)
        return
    with usage_options.opened(**asked) as look:
        if watch:
            screen.run(lambda: _block(_picture(look()), is_ascii, width), interval)
            return
        with console.progress("looking at the GPUs"):
            usage = look()
    _show(_picture(usage), svg, html, is_ascii=is_ascii, width=width)
    usage_options.print_warnings(usage)
    if not usage.document["gpus"] and not usage.has_driver:
        console.say("this node has no GPU driver; --inventory draws another node")


def _same(one: str, other: str) -> bool:
    return one == other or os.path.realpath(one) == os.path.realpath(other)


def _empty(inventory: str) -> Picture:
    document = node_usage.empty(usage_devices.of_file(inventory))
    return map_drawing.picture(os.path.basename(inventory), document, {})


def _picture(usage: NodeUsage) -> Picture:
    node = os.environ.get("NODE_NAME") or os.uname().nodename
    when = time.strftime("%Y-%m-%d %H:%M:%S %z")
    return map_drawing.picture(
        node,
        usage.document,
        usage.units,
        when=when,
        warnings=usage_options.warnings(usage),
    )


def _show(
    picture: Picture, svg: str | None, html: str | None, *, is_ascii: bool, width: int | None
) -> None:
    if svg is not None:
        _write(svg, map_svg.text(picture))
    if html is not None:
        _write(html, map_page.text(picture))
    if svg is None and html is None:
        click.echo(_text(picture, is_ascii, width), nl=False)


def _write(path: str, text: str) -> None:
    if path == _STANDARD_OUTPUT:
        click.echo(text, nl=False)
        return
    output_file.write(path, text.encode(), 0o644)
    console.say(f"wrote {path}")


def _block(picture: Picture, is_ascii: bool, width: int | None) -> str:
    """Return the picture for --watch, below the warnings."""
    warnings = (f"warning: {printable(text, _MAX_LINE)}\n" for text in picture.warnings)
    return "".join([*warnings, _text(picture, is_ascii, width)])


def _text(picture: Picture, is_ascii: bool, width: int | None) -> str:
    signs = (
        map_terminal.ASCII if is_ascii or not terminal_features.is_unicode() else map_terminal.FINE
    )
    columns = width or shutil.get_terminal_size().columns
    return map_terminal.text(
        picture, columns, signs=signs, has_colour=terminal_features.has_colour()
    )
