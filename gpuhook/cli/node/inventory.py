# SPDX-License-Identifier: Apache-2.0
"""`gpuhook inventory`: the GPUs and the driver of this node, or of a dump."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from gpuhook.cli.options import command_sections, parameters
from gpuhook.cli.options.node_options import load_node, node_options
from gpuhook.errors import GpuhookError
from gpuhook.host import console

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, MigInstance, Node

HEADERS = (
    "INDEX", "NAME", "UUID", "MINOR", "BUS-ID", "ARCH", "CC", "MEMORY", "NUMA", "MIG",
    "MODE", "SLICE", "STATE",
)  # fmt: skip
_ORDER = ("NAME", "PROFILE", "MEMORY", "STATE", "MIG", "UUID")  # the most important columns
INSTANCE_HEADERS = ("MIG", "PROFILE", "UUID", "GI", "CI", "MEMORY", "SMS", "CAPS", "STATE")


@click.command(cls=command_sections.SectionedCommand)
@node_options
@parameters.output(
    "table",
    "json",
    "yaml",
    "name",
    help="table: the GPUs; json, yaml: all facts, as a dump for --inventory; name: the UUIDs.",
)
@parameters.no_headers
def inventory(output: str, no_headers: bool, **options: Any) -> None:
    """Show the driver, the GPUs and the MIG instances of a node, or dump all facts.

    A dump works on any machine: gpuhook generate-cdi --inventory FILE.
    """
    node = load_node(**options, require_nodes=False)
    if options["inventory"] is None:
        node = _with_time_slices(node)
    if output == "table":
        _print(node, no_headers=no_headers)
        return
    if output == "name":
        console.names(_uuids(node))
        return
    from gpuhook.vendors.nvidia.inventory import dump_file

    click.echo(dump_file.text(node, output), nl=False)


def _with_time_slices(node: Node) -> Node:
    """Return the node with the time slices of its GPUs, unchanged if nvidia-smi fails.

    No other command needs them, and nvidia-smi takes as long as all other calls together.
    """
    from gpuhook.vendors.nvidia.driver import driver_locations
    from gpuhook.vendors.nvidia.gpu import compute_policy

    program = driver_locations.program_path(node, compute_policy.PROGRAM)
    try:
        slices = compute_policy.time_slices(compute_policy.Smi(program, node.driver.nvml or ""))
    except GpuhookError:
        return node
    return replace(
        node, gpus=tuple(replace(gpu, time_slice=slices.get(gpu.index)) for gpu in node.gpus)
    )


def _uuids(node: Node) -> list[str]:
    """Return the UUIDs by which containers can request GPUs and MIG instances."""
    found = [gpu.uuid for gpu in node.gpus if gpu.uuid and not gpu.lost]
    return found + [one.uuid for gpu in node.gpus for one in gpu.instances]


def _print(node: Node, *, no_headers: bool) -> None:
    """Print the driver, the GPUs and the MIG instances."""
    if not no_headers:
        driver = node.driver
        module = driver.module_version or "not loaded"
        click.echo(
            f"Driver {_cell(driver.version)}, kernel module {module}, CUDA {_cell(driver.cuda)}"
        )
        if not node.gpus:
            click.echo("\nNo GPUs.")
    instances = [_instance(gpu, one) for gpu in node.gpus for one in gpu.instances]
    tables = ((HEADERS, [_row(gpu) for gpu in node.gpus]), (INSTANCE_HEADERS, instances))
    left_out: list[str] = []
    for headers, rows in tables:
        if not rows:
            continue
        if not no_headers:
            click.echo()
        text, others = console.table_text(headers, rows, no_headers=no_headers, order=_ORDER)
        click.echo(text, nl=False)
        left_out += others
    console.say_left_out(left_out)


def _row(gpu: Gpu) -> tuple[str, ...]:
    facts = (
        gpu.index,
        gpu.name,
        gpu.uuid,
        gpu.minor,
        gpu.pci_bus_id,
        gpu.architecture,
        gpu.compute_capability,
        _mebibytes(gpu.memory_bytes),
        gpu.numa_node,
        gpu.mig_mode,
        gpu.compute_mode,
        gpu.time_slice,
        f"LOST: {gpu.lost}" if gpu.lost else "ok",
    )
    return tuple(_cell(fact) for fact in facts)


def _instance(gpu: Gpu, instance: MigInstance) -> tuple[str, ...]:
    facts = (
        f"{gpu.index}:{instance.index}",
        instance.profile,
        instance.uuid,
        instance.gpu_instance,
        instance.compute_instance,
        _mebibytes(instance.memory_bytes),
        instance.multiprocessors,
        f"{_cell(instance.gpu_instance_minor)},{_cell(instance.compute_instance_minor)}",
        f"BROKEN: {instance.trouble}" if instance.trouble else "ok",
    )
    return tuple(_cell(fact) for fact in facts)


def _mebibytes(number: int | None) -> str | None:
    return None if number is None else f"{number // 1024**2} MiB"


def _cell(fact: object) -> str:
    return "unknown" if fact is None else str(fact)
