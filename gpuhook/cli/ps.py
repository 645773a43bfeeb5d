# SPDX-License-Identifier: Apache-2.0
"""`gpuhook ps`: who uses which GPU now, what of its memory, and what is isolated."""

from __future__ import annotations

import json
from typing import Any

import click

from gpuhook.cli import screen
from gpuhook.cli.options import container_options as options
from gpuhook.cli.options import node_options, parameters, usage_options
from gpuhook.errors import printable
from gpuhook.host import console, documents
from gpuhook.host.text_table import table
from gpuhook.usage import ps_text, visibility

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.usage.node_usage import NodeUsage

_MAX_LINE = 4096
_DOCUMENTS = (console.JSON, console.YAML)


@click.command(
    epilog="\b\nExamples:\n"
    "  gpuhook ps\n"
    "  gpuhook ps -o wide --watch\n"
    "  gpuhook ps --isolation --recorded\n"
    "  gpuhook ps -o json | jq '.containers[] | {id, pod, usage}'"
)
@parameters.output(
    "table",
    "wide",
    "json",
    "yaml",
    "name",
    help="table shortens UUIDs and container ids, and adds up a container's GPUs; wide does not. "
    "name: the ids of the containers.",
)
@parameters.no_headers
@click.option(
    "--isolation",
    is_flag=True,
    help="Tell of each container and GPU how it is shared, and what that isolates: memory, "
    "compute, whether the share changes, and what a neighbour's crash does. JSON has it always.",
)
@click.option(
    "--recorded",
    is_flag=True,
    help="Only containers of gpuhook's ledger: none that others gave a GPU.",
)
@screen.options
@usage_options.options
@options.state_root
@node_options.library_options
def ps(
    *,
    output: str,
    no_headers: bool,
    isolation: bool,
    recorded: bool,
    watch: bool,
    interval: float,
    **asked: Any,
) -> None:
    """List who uses the GPUs: containers, their memory of each GPU, and how busy they are.

    All containers that hold a GPU, whoever gave it: those of gpuhook's ledger, and those of
    NVIDIA's stack (route nvidia-legacy, nvidia-cdi or unknown). "(host)" is what processes of the
    host use, "(unknown)" what no process that can be seen accounts for.

    MEMORY is what a container's processes use of its GPUs, as the driver tells; SHARE what that is
    of its fair share: of its limit, else of its replicas' part of the card, else of the card
    divided by those who hold it. BUSY is the part of the last moments in which its processes
    computed; MIG instances do not tell.

    LIMIT is what a container may have of each GPU's memory and who bounds it: "3776Mi driver";
    "3776Mi guard" where the driver does not hold it (`gpuhook limits show` says why) and the device
    plugin's guard ends processes of who is above; else "3776Mi nobody", also under a guard that
    only reports. "(over: 5000Mi)" is what a container above its limit uses, as the guard saw last.

    WARNINGS, if a container has one, are the codes of what gpuhook reported when it started:
    `gpuhook explain CONTAINER` prints them. -o wide also lists the containers that requested a GPU
    and started without one.

    An entry of the ledger whose runtime's state does not exist here, as in the device plugin's pod,
    is listed with a warning. Nothing is changed. Exit status 1 where nothing could be looked at.
    """
    missing = visibility.missing()
    is_judged = isolation or output in _DOCUMENTS
    with usage_options.opened(**asked, recorded=recorded, is_judged=is_judged) as look:
        if watch:
            screen.run(lambda: _block(look(), output, isolation, no_headers), interval)
            return
        with console.progress("looking at the GPUs"):
            usage = look()
    _print(usage, output, isolation=isolation, no_headers=no_headers)
    hidden = usage_options.tell(usage)
    if output == console.TABLE and usage.document["without_gpu"]:
        console.say("`gpuhook ps -o wide` lists the containers that started without a GPU")
    held = bool(usage.document["containers"])
    if hidden and not held:
        raise click.exceptions.Exit(1)
    if not held and output not in _DOCUMENTS:
        why = f": there is no {missing} yet" if missing else ""
        if not why and usage_options.has_no_driver(usage):
            why = ", and there is no NVIDIA driver"
        console.say(f"no container holds a GPU{why}")


def _print(usage: NodeUsage, output: str, *, isolation: bool, no_headers: bool) -> None:
    if output in _DOCUMENTS:
        console.document(usage.document, output)
    elif output == console.NAME:
        console.names(one["id"] for one in usage.document["containers"])
    else:
        click.echo(_text(usage, output, isolation=isolation, no_headers=no_headers), nl=False)


def _text(usage: NodeUsage, output: str, *, isolation: bool, no_headers: bool) -> str:
    is_wide = output == console.WIDE
    if isolation:
        lines = ps_text.isolation(usage.document["containers"], is_wide=is_wide)
        return "".join(printable(line, _MAX_LINE) + "\n" for line in lines)
    headers = ps_text.headers(usage.document, is_wide=is_wide)
    rows = ps_text.rows(usage.document, is_wide=is_wide)
    return table(None if no_headers else headers, rows)


def _block(usage: NodeUsage, output: str, isolation: bool, no_headers: bool) -> str:
    """Return a look as --watch shows it: what is wrong stands above it, but for documents."""
    if output == console.JSON:
        return json.dumps(usage.document) + "\n"
    if output == console.YAML:
        import yaml

        return "---\n" + documents.yaml_text(usage.document, yaml.SafeDumper)
    if output == console.NAME:
        return "".join(printable(one["id"]) + "\n" for one in usage.document["containers"]) + "\n"
    text = _text(usage, output, isolation=isolation, no_headers=no_headers)
    return usage_options.heading(usage) + text + "\n"
