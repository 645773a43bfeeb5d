# SPDX-License-Identifier: Apache-2.0
"""`gpuhook repair`: restores the GPUs that running containers have lost."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import click

from gpuhook.cli.options import command_sections, node_options
from gpuhook.cli.options import container_options as options
from gpuhook.containers import find
from gpuhook.containers.hot import ledger
from gpuhook.errors import GpuhookError
from gpuhook.host import console
from gpuhook.inspect import inspection
from gpuhook.live import container_worker, remote_mounts
from gpuhook.live import repair as repairing
from gpuhook.target import running_container

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuhook.entry.plan_context import PlanContext
    from gpuhook.target.running_container import Report, Target

    Library = Callable[[], str]


@click.command(cls=command_sections.SectionedCommand)
@options.container_or_none
@options.everything
@options.change_options
@node_options.library_options
def repair(
    *,
    container: str | None,
    everything: bool,
    state_roots: tuple[str, ...],
    dry_run: bool,
    output: str,
    **nvml: Any,
) -> None:
    """Restore the granted GPUs that a running CONTAINER has lost.

    `systemctl daemon-reload` resets the device rules of containers to those that systemd knows
    about, and programs fail with "Failed to initialize NVML: Unknown Error". repair does not
    restart any process.

    config.json and gpuhook's ledger record the granted GPUs. NVIDIA's hook leaves no such record:
    for its containers, repair takes the requested devices whose nodes exist in the container.

    repair also restores memory limits that are in the ledger but no longer in the driver, for
    example after the driver was reloaded or another program changed a limit (`gpuhook limits
    show`).

    --all also removes the ledger entries of containers that have exited.
    """
    library = partial(node_options.library, **nvml)
    options.require_choice(container, everything=everything)
    if container:
        _repair_one(container, state_roots, library, output, is_dry=dry_run)
    else:
        _repair_all(state_roots, library, output, is_dry=dry_run)


def _repair_one(
    container: str, roots: tuple[str, ...], library: Library, output: str, *, is_dry: bool
) -> None:

    def repaired(one: Target) -> Report:
        report = repairing.repair(one, options.context(), library, is_dry=is_dry)
        other = _other_faults(one)
        report.notes += [
            text
            for code, text in other.items()
            if code == "GH1123" or not (report.steps or one.granted)
        ]
        return report

    with options.failing("repair", container, output):
        report = container_worker.work_on(container, roots, repaired, to_change=not is_dry)
    options.show([report.document()], "repair", output)


def _other_faults(one: Target) -> dict[str, str]:
    """Return the faults that repair cannot fix, by code.

    The container requests GPUs and got none; or its GPU or MIG instance has left the node.
    """
    facts = inspection.inspect_container(one.held, one.found, one.spec, one.entry)
    wrong = [e for e in inspection.findings(facts, one.spec) if e.code in ("GH1123", "GH1745")]
    return {error.code: f"{error.message}: {error.hint}" for error in wrong}


def _repair_all(roots: tuple[str, ...], library: Library, output: str, *, is_dry: bool) -> None:
    """Repair each container, also if another one fails or the output is closed."""
    reports: list[dict[str, Any]] = []
    failures: list[dict[str, str]] = []
    output_error: OSError | None = None
    with console.progress("repairing"):
        for result in _all(roots, options.context(), library, is_dry=is_dry):
            if "code" in result:
                _print_failure(result)
                failures.append(result)
                continue
            reports.append(result)
            if output == "text" and output_error is None:
                try:
                    console.clear_progress()
                    options.show([result], "repair", output)
                except OSError as error:  # `gpuhook repair --all | head`: repair the others too
                    output_error = error
    if output_error is not None:
        raise output_error
    if output != "text":
        options.show(reports, "repair", output, failures)
    elif not reports and not failures:
        console.say("no running container was granted a GPU")
    if failures:
        raise click.exceptions.Exit(1)


def _print_failure(result: dict[str, Any]) -> None:
    hint = result.pop("hint")
    console.clear_progress()
    click.echo("Error {code}: {container}: {message}".format(**result), err=True)
    click.echo(f"hint: {hint}", err=True)


def _all(
    state_roots: tuple[str, ...], context: PlanContext, library: Library, *, is_dry: bool
) -> Iterator[dict[str, Any]]:
    """Repair each container; yields its report, or its failure."""
    if not is_dry:
        ledger.living(is_swept=True)
    living, broken = find.everything(state_roots)
    # Each user repairs their own containers.
    ours = [found for found in living if found.is_ours]
    work = partial(_repaired, context=context, library=library, is_dry=is_dry)
    with container_worker.ContainerWorker(work, to_change=not is_dry) as worker:
        for found in console.counted(ours, len(ours), "containers"):
            try:
                result = worker.do(found)
            except GpuhookError as error:
                if error.code not in running_container.GONE:  # else it has exited
                    yield _failure(found.id, error)
            else:
                if result:
                    yield result
    for where, reason in broken.items():
        yield _failure(os.path.basename(where), reason)


def _repaired(
    one: Target, *, context: PlanContext, library: Library, is_dry: bool
) -> dict[str, Any]:
    """Return the report on a container, {} if it was granted nothing."""
    if repairing.looks_into(one, context):
        remote_mounts.require_none(one, context)
    report = repairing.repair(one, context, library, is_dry=is_dry)
    return report.document() if one.granted or report.steps else {}


def _failure(container: str, error: GpuhookError) -> dict[str, Any]:
    return {**options.failure(container, error), "hint": error.hint}
