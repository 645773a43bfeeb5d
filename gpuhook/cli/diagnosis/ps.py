# SPDX-License-Identifier: Apache-2.0
"""`gpuhook ps`: the containers that use GPUs, their memory and their isolation."""

from __future__ import annotations

import json
from typing import Any

import click

from gpuhook.cli.diagnosis import screen, usage_options
from gpuhook.cli.options import command_sections, node_options, parameters
from gpuhook.cli.options import container_options as options
from gpuhook.errors import printable
from gpuhook.host import console, documents
from gpuhook.usage import ps_text, visibility

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.usage.node_usage import NodeUsage

_MAX_LINE = 4096
_DOCUMENTS = (console.JSON, console.YAML)


@click.command(
    cls=command_sections.SectionedCommand,
    epilog="\b\nExamples:\n"
    "  gpuhook ps\n"
    "  gpuhook ps -o wide --watch\n"
    "  gpuhook ps --isolation --recorded\n"
    "  gpuhook ps -o json | jq '.containers[] | {id, name, usage}'",
)
@parameters.output(
    "table",
    "wide",
    "json",
    "yaml",
    "name",
    help="table has one line per container; wide has one per GPU, UUIDs, full container ids "
    "and images, and more columns. name: the ids of the containers.",
)
@parameters.no_headers
@click.option(
    "--isolation",
    is_flag=True,
    help="For each container and GPU, show how the GPU is shared and what is isolated: memory, "
    "compute, whether the share changes, and the effect of another container's crash. JSON "
    "always has it.",
)
@click.option(
    "--recorded",
    is_flag=True,
    help="List only containers in gpuhook's ledger, not those with GPUs from other programs.",
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
    """List the containers that use GPUs, their GPU memory, and how busy they are.

    The list includes all containers with a GPU of any vendor: those in gpuhook's ledger, and those
    of other programs (ROUTE in -o wide: nvidia-legacy, nvidia-cdi or unknown). "(host)" is the
    memory of processes on the host, "(unknown)" memory that no visible process accounts for.

    NAME is the container's name in its engine, or POD/CONTAINER. GPUS lists indices with the
    model, "0,1 (H100 80GB HBM3)", with the MIG profile, "0:1 (1g.10gb)", or with the mode of the
    partition, "0:3 (CPX/NPS4)". On a node with NVIDIA and AMD GPUs, the indices of AMD GPUs have
    the word amd: "amd 0".

    MEMORY is the GPU memory that the container's processes use, as reported by the driver.
    SHARE is MEMORY relative to the container's fair share: its limit, else its replicas' part
    of the GPU's memory, else that memory divided by the number of containers. BUSY is the
    percentage of the last few seconds in which its processes were computing; MIG instances do not
    report it. On an AMD GPU, it is the percentage of the compute units that they occupy now.

    LIMIT is the memory limit for each GPU, and what enforces it: `3776Mi driver`; `3776Mi guard` if
    the driver cannot (`gpuhook limits show` prints the reason) and the device plugin's guard
    terminates processes above the limit; else `3776Mi nobody`, including when the guard only
    reports. "(over: 5000Mi)" is the memory of a container that the guard last saw above its limit.

    WARNINGS, if any, lists the codes of warnings from the start of the container: `gpuhook explain
    CONTAINER` prints them. -o wide also lists the containers that requested a GPU and started
    without one.

    A ledger entry whose runtime state cannot be found, as in the device plugin's pod, is listed
    with a warning. The command changes nothing. The exit status is 1 if nothing could be read.
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
    hidden = usage_options.print_warnings(usage)
    if output == console.TABLE and usage.document["without_gpu"]:
        console.say("`gpuhook ps -o wide` lists the containers that started without a GPU")
    held = bool(usage.document["containers"])
    if hidden and not held:
        raise click.exceptions.Exit(1)
    if not held and output not in _DOCUMENTS:
        why = f": {missing} does not exist yet" if missing else ""
        if not why and not usage.has_driver:
            why = ", and this node has no GPU driver"
        console.say(f"no container has a GPU{why}")


def _print(usage: NodeUsage, output: str, *, isolation: bool, no_headers: bool) -> None:
    if output in _DOCUMENTS:
        console.document(usage.document, output)
    elif output == console.NAME:
        console.names(one["id"] for one in usage.document["containers"])
    else:
        text, left_out = _text(usage, output, isolation=isolation, no_headers=no_headers)
        click.echo(text, nl=False)
        console.say_left_out(left_out)


def _text(
    usage: NodeUsage, output: str, *, isolation: bool, no_headers: bool
) -> tuple[str, list[str]]:
    is_wide = output == console.WIDE
    if isolation:
        lines = ps_text.isolation(usage.document, is_wide=is_wide)
        return "".join(printable(line, _MAX_LINE) + "\n" for line in lines), []
    headers, rows = ps_text.columns(usage.document, is_wide=is_wide)
    return console.table_text(
        headers, rows, no_headers=no_headers, order=ps_text.ORDER, is_wide=is_wide
    )


def _block(usage: NodeUsage, output: str, isolation: bool, no_headers: bool) -> str:
    """Return the text for --watch: a document, or the warnings and the table."""
    if output == console.JSON:
        return json.dumps(usage.document) + "\n"
    if output == console.YAML:
        import yaml

        return "---\n" + documents.yaml_text(usage.document, yaml.SafeDumper)
    if output == console.NAME:
        return "".join(printable(one["id"]) + "\n" for one in usage.document["containers"]) + "\n"
    text, _ = _text(usage, output, isolation=isolation, no_headers=no_headers)
    return usage_options.heading(usage) + text + "\n"
