# SPDX-License-Identifier: Apache-2.0
"""`gpuhook limits`: what a running container may have of its GPUs' memory, set, shown, cleared."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import click

from gpuhook.cli import limit_tables
from gpuhook.cli.options import command_sections, limit_options, node_options, parameters
from gpuhook.cli.options import container_options as options
from gpuhook.containers.hot import ledger
from gpuhook.errors import GpuhookError, fault
from gpuhook.host import console
from gpuhook.host.hot import state
from gpuhook.live import container_worker
from gpuhook.memory_limits import drop_limits, limit_changes, limit_report, visible_gpus
from gpuhook.memory_limits.nvml_worker import PatientDriver
from gpuhook.memory_limits.warm import limit_records
from gpuhook.usage import visibility

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.target.running_container import Report, Target


def _examples(*commands: str) -> str:
    """Return the end of a help text; its lines stay as they are."""
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
    """Limit the GPU memory of running containers, and tell who has which limit.

    The driver holds such a limit for a container's cgroup: an allocation beyond it fails, in this
    container alone. It needs a driver of CUDA 13.4 or newer, cgroup v2, and root.
    """


@limits.command(
    name="set",
    epilog=_examples(
        "set trainer --limit 4Gi", "set trainer --limit 4096Mi --request 2Gi --gpu 0 --dry-run"
    ),
)
@options.container
@limit_options.limit
@limit_options.request
@limit_options.gpu
@options.state_root
@options.dry_run
@options.output
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
    """Limit what a running CONTAINER may have of the memory of its GPUs.

    It holds at once, for processes that run too: what they have stays theirs. A driver takes no
    limit below what it has counted for the container already. On kernels without the controller
    dmem it counts from the container's first limit on, and what was there before stays beside it.
    What was set is read back from the driver, and the ledger has it, so that `gpuhook repair` can
    put it back. All of the GPUs get it, or none. A restart of the container brings back what it was
    granted.

    CONTAINER is named as in `gpuhook attach --help`.
    """
    limit_options.require_order(request, limit)
    names, wish = limit_options.names_of(gpus), limit_changes.Wish(limit, request)

    def changed(one: Target) -> Report:
        library = node_options.library(**nvml)
        with PatientDriver(library) as driver:
            chosen = visible_gpus.chosen(
                one.found.id, visible_gpus.visible_gpus(one, library), names
            )
            return limit_changes.set_limits(one, driver, chosen, wish, is_dry=dry_run)

    with options.failing("limits-set", container, output):
        report = _changed(container, state_roots, changed, is_dry=dry_run)
    report.notes += limit_options.warnings(limit)
    options.show([report.document()], "limits-set", output)


@limits.command(epilog=_examples("clear trainer", "clear trainer --gpu 1 --all"))
@options.container
@limit_options.gpu
@click.option(
    "--all",
    "lifts_grants",
    is_flag=True,
    help="Lift what the container was granted, too: then nothing bounds it. Where this node holds "
    "no limits, the ledger alone is changed.",
)
@options.state_root
@options.dry_run
@options.output
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
    """Take away what `gpuhook limits set` has set for a running CONTAINER.

    What it was granted when it was made holds again: by a device plugin, or by its own
    NVIDIA_GPU_MEMORY_LIMIT. Where nothing was granted, nothing is limited any more. What the driver
    has reserved for the container above it is given back, too, where the kernel's controller dmem
    holds limits: it would outlive the container.

    CONTAINER is named as in `gpuhook attach --help`.
    """
    names = limit_options.names_of(gpus)

    def cleared(one: Target) -> Report:
        library = node_options.library(**nvml)
        chosen = _to_clear(one, library, names)
        try:
            with PatientDriver(library) as driver:
                guarantee = options.context().settings.limits_guarantee
                return limit_changes.clear(
                    one, driver, chosen, guarantee, lifts_grants=lifts_grants, is_dry=dry_run
                )
        except GpuhookError as error:
            if not lifts_grants or error.code not in drop_limits.UNHELD:
                raise
            return drop_limits.lifted(one, chosen, error, is_dry=dry_run)

    with options.failing("limits-clear", container, output):
        report = _changed(container, state_roots, cleared, is_dry=dry_run)
    options.show([report.document()], "limits-clear", output)


@limits.command(epilog=_examples("show", "show trainer -o json"))
@options.container_or_none
@options.state_root
@parameters.output(
    "table",
    "wide",
    "json",
    "yaml",
    "name",
    help="table shortens UUIDs and container ids, wide does not.",
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
    """Show memory limits: of one running CONTAINER, or of all that have some.

    GRANTED is what a container was given when it was made, LIMIT and REQUEST what the ledger has
    for it now, DRIVER what the driver holds this moment, USED what it uses of that. BY is who
    bounds it: the driver; the device plugin's guard, where it ends processes of who is above; else
    nobody, also under a guard that only reports. "(over)" is above its limit, as the guard saw it
    last. Standard error says what was done about that, and where the ledger and the driver differ,
    with the command that mends it, and where a guarantee was left out (limits.guarantee in the
    settings). It also says whether this node can hold limits at all, and by what, or why it cannot.
    Exit status 1 where nothing could be looked at.

    CONTAINER is named as in `gpuhook attach --help`.
    """
    library = partial(node_options.library, **nvml)

    def look(one: Target) -> tuple[limit_report.View, str, GpuhookError | None]:
        with limit_report.asking(library) as own:
            return limit_report.of_target(one, own), own.library, own.trouble

    with console.progress("asking the driver"), limit_report.asking(library) as asked:
        if container is None:
            visibility.missing()  # a state directory that can be none is a fault
            shown = [limit_report.of_entry(entry, asked) for entry in _limited(asked)]
        else:
            view, asked.library, asked.trouble = container_worker.work_on(
                container, state_roots, look
            )
            shown = [view]
    limit_tables.show(shown, asked, output, no_headers=no_headers)
    hidden = [] if container else visibility.warnings()
    for warning in hidden:
        click.echo(f"warning: {warning}", err=True)
    if hidden and not shown:
        raise click.exceptions.Exit(1)
    if not (container or shown) and output in ("table", "wide"):
        console.say("no container has a memory limit that gpuhook knows of")


def _changed(
    container: str, roots: tuple[str, ...], work: Callable[[Target], Report], *, is_dry: bool
) -> Report:
    """Return what `work` reports on the container; GH1784 for a user who is not the host's root."""
    if state.is_rootless():
        raise fault("GH1784", user=os.geteuid())
    return container_worker.work_on(container, roots, work, to_change=not is_dry)


def _to_clear(one: Target, library: str, names: list[str]) -> list[str]:
    """Return the UUIDs of the GPUs that are meant; one that is lost is known by the ledger."""
    records = limit_records.records_of(one.entry)
    own = visible_gpus.visible_gpus(one, library, records)
    if names:
        return [str(gpu.uuid) for gpu in visible_gpus.chosen(one.found.id, own, names)]
    whole = [str(gpu.uuid) for gpu in own if gpu.mig_mode != "enabled"]
    found = list(dict.fromkeys([*whole, *records]))
    if not found:
        raise fault("GH1780", container=one.found.id)
    return found


def _limited(asked: limit_report.LimitQuestion) -> list[dict[str, Any]]:
    """Return the containers with a limit: of the ledger's knowing, or only of the guard's."""
    watched = {container for container, _ in asked.watched}
    return [
        entry
        for entry in ledger.living()
        if limit_records.records_of(entry) or entry["id"] in watched
    ]
