# SPDX-License-Identifier: Apache-2.0
"""`gpuhook map`: the node's GPUs as a picture, in the terminal, as SVG or as a page."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import Any

import click

from gpuhook.cli import screen
from gpuhook.cli.options import container_options as options
from gpuhook.cli.options import node_options, usage_options
from gpuhook.errors import printable
from gpuhook.host import console, output_file
from gpuhook.map import map_drawing, map_terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.map.map_model import Picture
    from gpuhook.usage.node_usage import NodeUsage

_STANDARD_OUTPUT = "-"
_MAX_LINE = 4096
_FILE = click.Path(dir_okay=False, allow_dash=True)


@click.command(
    name="map",
    epilog="\b\nExamples:\n"
    "  gpuhook map\n"
    "  gpuhook map --watch\n"
    "  gpuhook map --html node.html\n"
    "  gpuhook map --inventory a100-mig --svg empty.svg",
)
@click.option(
    "--svg",
    metavar="FILE",
    type=_FILE,
    help="Write a picture for browsers and paper; - prints it.",
)
@click.option(
    "--html",
    metavar="FILE",
    type=_FILE,
    help="Write a page with the picture and a table of it, which needs nothing else; - prints it.",
)
@click.option("--ascii", "is_ascii", is_flag=True, help="Draw with + - | # only.")
@click.option(
    "--width",
    type=click.IntRange(min=map_terminal.NARROWEST),
    metavar="COLUMNS",
    help="How wide to draw in the terminal. Default: as wide as it is.",
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
    """Draw the GPUs of this node: each a bar of its memory, cut into those who have a part.

    A GPU is cut into its MIG instances, by their memory, and these or the GPU itself into their
    replicas. A cell has who holds it, and fills up with what they use; "!" is one above its fair
    share (see `gpuhook ps --help`). With --inventory, the empty picture of a node that one does
    not have.

    Who holds what is told by the ledger, the runtimes' state, the driver and the kubelet, as far
    as they can be asked.
    """
    if watch and (svg or html or inventory):
        raise click.UsageError("--watch draws in the terminal, and only this node")
    if svg is not None and html is not None and _same(svg, html):
        raise click.UsageError("--svg and --html are two files: name two")
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
    usage_options.tell(usage)
    if not usage.document["gpus"] and usage_options.has_no_driver(usage):
        console.say("there is no NVIDIA driver here; --inventory draws another node")


def _same(one: str, other: str) -> bool:
    return one == other or os.path.realpath(one) == os.path.realpath(other)


def _empty(inventory: str) -> Picture:
    from gpuhook.usage import node_usage, usage_devices
    from gpuhook.vendors.nvidia.inventory import dump_file

    document = node_usage.empty(usage_devices.of_node(dump_file.load(inventory)))
    return map_drawing.picture(os.path.basename(inventory), document, {})


def _picture(usage: NodeUsage) -> Picture:
    node = os.environ.get("NODE_NAME") or os.uname().nodename
    when = time.strftime("%Y-%m-%d %H:%M:%S %z")
    wrong = usage_options.wrong(usage)
    return map_drawing.picture(node, usage.document, usage.units or {}, when=when, warnings=wrong)


def _show(
    picture: Picture, svg: str | None, html: str | None, *, is_ascii: bool, width: int | None
) -> None:
    if svg is not None:
        from gpuhook.map import map_svg as drawing

        _write(svg, drawing.text(picture))
    if html is not None:
        from gpuhook.map import map_page

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
    """Return a look as --watch shows it: what could not be seen stands above it."""
    warnings = (f"warning: {printable(text, _MAX_LINE)}\n" for text in picture.warnings)
    return "".join([*warnings, _text(picture, is_ascii, width)])


def _text(picture: Picture, is_ascii: bool, width: int | None) -> str:
    signs = map_terminal.ASCII if is_ascii or not _is_unicode() else map_terminal.FINE
    columns = width or shutil.get_terminal_size().columns
    return map_terminal.text(picture, columns, signs=signs, has_colour=console.has_colour())


def _is_unicode() -> bool:
    """Return whether standard output can take lines and blocks."""
    try:
        "╭█".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
