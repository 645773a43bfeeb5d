# SPDX-License-Identifier: Apache-2.0
"""`gpuhook repair`: containers that lost their GPUs get them back."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import click

from gpuhook.cli.options import container_options as options
from gpuhook.cli.options import node_options
from gpuhook.containers.hot import ledger
from gpuhook.containers.warm import find
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


@click.command()
@options.container_or_none
@click.option("--all", "everything", is_flag=True, help="Every running container of this node.")
@options.state_root
@options.dry_run
@options.output
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
    """Put back what a running CONTAINER has lost of the GPUs that it was granted, and no more.

    After `systemctl daemon-reload` the device rules of containers are what systemd knows, and
    programs get "Failed to initialize NVML: Unknown Error". The processes go on: none is restarted.

    What was granted is in config.json and in gpuhook's ledger. Of a container that NVIDIA's own
    hook gave its GPUs, which leaves no such trace, the nodes count that it asks for and has.
    CONTAINER is named as in `gpuhook attach --help`.

    Limits of memory that the ledger has and the driver holds no more are put back too: a driver
    that was loaded anew knows none, and somebody may have changed one (`gpuhook limits show`).

    --all also removes the ledger's entries of containers that have ended.
    """
    library = partial(node_options.library, **nvml)
    if everything and container:
        raise click.UsageError("name a CONTAINER, or --all, not both")
    if not (everything or container):
        raise click.UsageError("name a CONTAINER, or --all")
    if container:
        _repair_one(container, state_roots, library, output, is_dry=dry_run)
    else:
        _repair_all(state_roots, library, output, is_dry=dry_run)


def _repair_one(
    container: str, roots: tuple[str, ...], library: Library, output: str, *, is_dry: bool
) -> None:

    def repaired(one: Target) -> Report:
        report = repairing.repair(one, options.context(), library, is_dry=is_dry)
        told = _beyond(one)
        report.notes += [
            text
            for code, text in told.items()
            if code == "GH1123" or not (report.steps or one.granted)
        ]
        return report

    with options.failing("repair", container, output):
        report = container_worker.work_on(container, roots, repaired, to_change=not is_dry)
    options.show([report.document()], "repair", output)


def _beyond(one: Target) -> dict[str, str]:
    """Return what is not repair's to mend, by the code of the fault.

    A container asks for GPUs and was given none; or its GPU, or MIG instance, has left the node.
    """
    facts = inspection.inspect_container(one.held, one.found, one.spec, one.entry)
    wrong = [e for e in inspection.findings(facts, one.spec) if e.code in ("GH1123", "GH1745")]
    return {error.code: f"{error.message}: {error.hint}" for error in wrong}


def _repair_all(roots: tuple[str, ...], library: Library, output: str, *, is_dry: bool) -> None:
    """Repair what can be repaired, whatever becomes of the rest, or of what is told of it."""
    reports: list[dict[str, Any]] = []
    failures: list[dict[str, str]] = []
    unsaid: OSError | None = None
    for result in _all(roots, options.context(), library, is_dry=is_dry):
        if "code" in result:
            hint = result.pop("hint")
            failures.append(result)
            click.echo("Error {code}: {container}: {message}".format(**result), err=True)
            click.echo(f"hint: {hint}", err=True)
            continue
        reports.append(result)
        if output == "text" and unsaid is None:
            try:
                options.show([result], "repair", output)
            except OSError as error:  # `gpuhook repair --all | head`: the others need it too
                unsaid = error
    if unsaid is not None:
        raise unsaid
    if output != "text":
        options.show(reports, "repair", output, failures)
    elif not reports and not failures:
        console.say("no running container was granted a GPU")
    if failures:
        raise click.exceptions.Exit(1)


def _all(
    state_roots: tuple[str, ...], context: PlanContext, library: Library, *, is_dry: bool
) -> Iterator[dict[str, Any]]:
    """Repair container after container; yields what was done to each, or why it could not be."""
    if not is_dry:
        ledger.living(is_swept=True)
    living, broken = find.everything(state_roots)
    # Another user's own are that user's to repair.
    ours = [found for found in living if found.is_ours]
    work = partial(_repaired, context=context, library=library, is_dry=is_dry)
    with container_worker.ContainerWorker(work, to_change=not is_dry) as worker:
        for found in ours:
            try:
                result = worker.do(found)
            except GpuhookError as error:
                if (
                    error.code not in running_container.GONE
                ):  # else it has ended: nothing is to repair
                    yield _failure(found.id, error)
            else:
                if result:
                    yield result
    for where, reason in broken.items():
        yield _failure(os.path.basename(where), reason)


def _repaired(
    one: Target, *, context: PlanContext, library: Library, is_dry: bool
) -> dict[str, Any]:
    """Return what was done to a container, {} for one that was granted nothing."""
    if repairing.looks_into(one, context):
        remote_mounts.require_none(one, context)
    report = repairing.repair(one, context, library, is_dry=is_dry)
    return report.document() if one.granted or report.steps else {}


def _failure(container: str, error: GpuhookError) -> dict[str, Any]:
    return {**options.failure(container, error), "hint": error.hint}
