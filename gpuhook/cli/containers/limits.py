# SPDX-License-Identifier: Apache-2.0
"""`gpuhook limits`: sets, shows and clears the GPU memory limits of running containers."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import click

from gpuhook.cli.containers import limit_options, limit_tables
from gpuhook.cli.options import command_sections, node_options, parameters
from gpuhook.cli.options import container_options as options
from gpuhook.containers import find
from gpuhook.containers.hot import ledger
from gpuhook.errors import GpuhookError, fault
from gpuhook.host import console, system_mounts
from gpuhook.host.hot import state
from gpuhook.live import container_worker
from gpuhook.memory_limits import limit_changes, limit_report, visible_gpus
from gpuhook.memory_limits.limit_worker import LimitDrivers
from gpuhook.memory_limits.warm import limit_records
from gpuhook.usage import visibility

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.memory_limits.limit_report import ContainerLimits
    from gpuhook.target.running_container import Report, Target


def _examples(*commands: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  gpuhook limits {command}" for command in commands)


@click.group(
    cls=command_sections.Sentences,
    epilog=_examples(
        "show",
        "set trainer --limit 4Gi --request 2Gi",
        "set ml/train-0/main --limit 6Gi --gpu 1",
        "clear trainer",
    ),
)
def limits() -> None:
    """Limit the GPU memory of running containers, and show the limits.

    The limit applies to a container's cgroup: an allocation above it fails, but only in this
    container. The driver of NVIDIA GPUs enforces it (CUDA 13.4 or newer), the kernel's controller
    dmem that of AMD GPUs. This requires cgroup v2, and root.
    """


@limits.command(
    name="set",
    cls=command_sections.SectionedCommand,
    epilog=_examples(
        "set trainer --limit 4Gi", "set trainer --limit 4096Mi --request 2Gi --gpu 0 --dry-run"
    ),
)
@options.container
@limit_options.limit
@limit_options.request
@limit_options.gpu
@options.change_options
@node_options.library_options
def set_(
    *,
    container: str,
    limit: int,
    request: int | None,
    gpus: tuple[str, ...],
    state_roots: tuple[str, ...],
    dry_run: bool,
    output: str,
    **nvml: Any,
) -> None:
    """Limit the GPU memory of a running CONTAINER.

    The limit applies immediately, even to running processes, which keep the memory they have
    allocated. A limit below the memory that is already charged to the container is rejected. On
    kernels without the dmem controller, accounting starts with the container's first limit and does
    not include older allocations. The command reads the limit back from the driver and records it
    in the ledger, so that `gpuhook repair` can restore it. It sets the limit on all GPUs or on
    none. The granted limit is restored when the container restarts.
    """
    limit_options.require_order(request, limit)
    names, wish = limit_options.names_of(gpus), limit_changes.Wish(limit, request)

    def changed(one: Target) -> Report:
        library = partial(node_options.library, **nvml)
        own = visible_gpus.visible_gpus(one, library)
        chosen = visible_gpus.chosen(one.found.id, own, names)
        with LimitDrivers(library) as drivers:
            return limit_changes.set_limits(one, drivers, chosen, wish, is_dry=dry_run)

    with options.failing("limits-set", container, output):
        report = _changed(container, state_roots, changed, is_dry=dry_run)
    report.notes += limit_options.warnings(limit)
    options.show([report.document()], "limits-set", output)


@limits.command(
    cls=command_sections.SectionedCommand,
    epilog=_examples("clear trainer", "clear trainer --gpu 1 --all"),
)
@options.container
@limit_options.gpu
@click.option(
    "--all",
    "lifts_grants",
    is_flag=True,
    help="Also remove the granted limit: the container is then unlimited. If this node cannot "
    "enforce limits, only the ledger is changed.",
)
@options.change_options
@node_options.library_options
def clear(
    *,
    container: str,
    gpus: tuple[str, ...],
    lifts_grants: bool,
    state_roots: tuple[str, ...],
    dry_run: bool,
    output: str,
    **nvml: Any,
) -> None:
    """Remove the limits that `gpuhook limits set` has set for a running CONTAINER.

    The granted limit (from a device plugin or a variable such as NVIDIA_GPU_MEMORY_LIMIT) then
    applies again. A container without a granted limit is then unlimited. If the kernel's dmem
    controller enforces limits, the command also releases memory that is reserved above the granted
    guarantee, because the reservation would outlive the container.
    """
    names = limit_options.names_of(gpus)

    def cleared(one: Target) -> Report:
        library = partial(node_options.library, **nvml)
        chosen = _to_clear(one, library, names)
        try:
            with LimitDrivers(library) as drivers:
                guarantee = options.context().settings.limits_guarantee
                return limit_changes.clear(
                    one, drivers, chosen, guarantee, lifts_grants=lifts_grants, is_dry=dry_run
                )
        except GpuhookError as error:
            if not lifts_grants or error.code not in limit_changes.UNHELD:
                raise
            return limit_changes.lift_in_ledger(one, chosen, error, is_dry=dry_run)

    with options.failing("limits-clear", container, output):
        report = _changed(container, state_roots, cleared, is_dry=dry_run)
    options.show([report.document()], "limits-clear", output)


@limits.command(
    cls=command_sections.SectionedCommand, epilog=_examples("show", "show trainer -o json")
)
@options.container_or_none
@options.state_root
@parameters.output(
    "table",
    "wide",
    "json",
    "yaml",
    "name",
    help="wide adds UUIDs, full container ids and images, and more columns.",
)
@parameters.no_headers
@node_options.library_options
def show(
    *,
    container: str | None,
    state_roots: tuple[str, ...],
    output: str,
    no_headers: bool,
    **nvml: Any,
) -> None:
    """Show the memory limits of one running CONTAINER, or of all containers with a limit.

    GRANTED is the limit set when the container was created, LIMIT and REQUEST are the limit and the
    guarantee in the ledger, DRIVER is the limit in the driver or the kernel, USED the memory in
    use. BY is the component that enforces the limit: `driver`; `kernel`; `guard` if the device
    plugin's guard terminates processes above it; or `nobody`, including when the guard only
    reports. "(over)" marks a container that the guard last saw above its limit.

    Standard error lists the guard's actions, differences between the ledger and the driver with the
    command that fixes them, guarantees that were not set (limits.guarantee in the settings),
    and whether this node can enforce limits. The exit status is 1 if nothing could be read.
    """
    system_mounts.require()
    library = partial(node_options.library, **nvml)
    with console.progress("asking the driver"), limit_report.LimitReader(library) as asked:
        if container is None:
            visibility.missing()  # raises a fault for a state directory that is not one
            shown = _all(state_roots, asked)
        else:
            view, asked.library, asked.trouble = container_worker.work_on(
                container, state_roots, partial(_view, library)
            )
            shown = [view]
    limit_tables.show(shown, asked, output, no_headers=no_headers)
    hidden = [] if container else visibility.warnings()
    for warning in hidden:
        console.warn(warning)
    if hidden and not shown:
        raise click.exceptions.Exit(1)
    if not (container or shown) and output in ("table", "wide"):
        console.say("no container has a memory limit")


def _view(
    library: Callable[[], str], one: Target
) -> tuple[limit_report.ContainerLimits, str, GpuhookError | None]:
    with limit_report.LimitReader(library) as own:
        return limit_report.container_limits(one, own), own.library, own.trouble


def _changed(
    container: str, roots: tuple[str, ...], work: Callable[[Target], Report], *, is_dry: bool
) -> Report:
    """Return the report of `work` on the container; GH1784 unless the user is the host's root."""
    if state.is_rootless():
        raise fault("GH1784", user=os.geteuid())
    return container_worker.work_on(container, roots, work, to_change=not is_dry)


def _to_clear(one: Target, library: Callable[[], str], names: list[str]) -> list[str]:
    """Return the ids of the named GPUs, or of all; those of lost GPUs are in the ledger."""
    records = limit_records.records_of(one.entry)
    own = visible_gpus.visible_gpus(one, library, records)
    if names:
        return [gpu.id for gpu in visible_gpus.chosen(one.found.id, own, names)]
    whole = [gpu.id for gpu in own if not gpu.is_divided]
    found = list(dict.fromkeys([*whole, *records]))
    if not found:
        raise fault("GH1780", container=one.found.id)
    return found


def _all(state_roots: tuple[str, ...], asked: limit_report.LimitReader) -> list[ContainerLimits]:
    """Return the limits of all containers that have one."""
    entries = _limited(asked)
    visible = find.visible(state_roots)[0] if entries else []
    by_id = {found.id: found for found in visible}
    return [limit_report.entry_limits(one, asked, by_id.get(one["id"])) for one in entries]


def _limited(asked: limit_report.LimitReader) -> list[dict[str, Any]]:
    """Return the ledger entries of containers with a limit, also one that only the guard has."""
    watched = {container for container, _ in asked.watched}
    return [
        entry
        for entry in ledger.living()
        if limit_records.records_of(entry) or entry["id"] in watched
    ]
