# SPDX-License-Identifier: Apache-2.0
"""`gpuhook inventory`: what this node, or a dumped one, has."""

from __future__ import annotations

from typing import Any

import click

from gpuhook.programs.cli import parameters
from gpuhook.programs.cli.node_options import load_node, node_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory import Gpu, Node

HEADERS = (
    "INDEX", "NAME", "UUID", "MINOR", "BUS-ID", "ARCH", "CC", "MEMORY", "NUMA", "MIG", "STATE",
)  # fmt: skip


@click.command()
@node_options
@parameters.output(
    "table",
    "json",
    "yaml",
    help="A table of the GPUs, or all that is known as a dump for --inventory.",
)
def inventory(output: str, **options: Any) -> None:
    """Show the driver and the GPUs of a node, and dump all of it.

    A dump of a cluster's node can be studied anywhere: gpuhook generate-cdi --inventory FILE.
    """
    node = load_node(**options, require_nodes=False)
    if output == "table":
        click.echo("\n".join(_table(node)))
        return
    from gpuhook.vendors.nvidia import dump_file

    click.echo(dump_file.text(node, output), nl=False)


def _table(node: Node) -> list[str]:
    driver = node.driver
    head = f"Driver {_shown(driver.version)}, kernel module {driver.module_version or 'not loaded'}"
    head += f", CUDA {_shown(driver.cuda)}"
    if not node.gpus:
        return [head, "", "No GPUs."]
    rows = [HEADERS, *(_row(gpu) for gpu in node.gpus)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return [head, "", *(line.rstrip() for line in padded)]


def _row(gpu: Gpu) -> tuple[str, ...]:
    memory = None if gpu.memory_bytes is None else f"{gpu.memory_bytes // 1024**2} MiB"
    facts = (
        gpu.index,
        gpu.name,
        gpu.uuid,
        gpu.minor,
        gpu.pci_bus_id,
        gpu.architecture,
        gpu.compute_capability,
        memory,
        gpu.numa_node,
        gpu.mig_mode,
        f"LOST: {gpu.lost}" if gpu.lost else "ok",
    )
    return tuple(_shown(fact) for fact in facts)


def _shown(fact: object) -> str:
    return "unknown" if fact is None else str(fact)
