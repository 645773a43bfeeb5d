# SPDX-License-Identifier: Apache-2.0
"""`gpuhook repair`: containers that lost their GPUs get them back."""

from __future__ import annotations

import os
from functools import partial

import click

from gpuhook.container import find
from gpuhook.errors import GpuhookError, fault, printable
from gpuhook.programs import apart, target
from gpuhook.programs import repair as repairing
from gpuhook.programs.cli import container_options as options
from gpuhook.programs.cli import worded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gpuhook.container.runtime_state import Found
    from gpuhook.programs.granting import Granting

_SECONDS = 60


@click.command()
@click.argument("container", required=False)
@click.option("--all", "everything", is_flag=True, help="Every running container of this node.")
@options.state_root
@options.dry_run
@options.output
def repair(
    *,
    container: str | None,
    everything: bool,
    state_roots: tuple[str, ...],
    dry_run: bool,
    output: str,
) -> None:
    """Put back what a running CONTAINER has lost of the GPUs that it was granted, and no more.

    After `systemctl daemon-reload` the device rules of containers are what systemd knows, and
    programs get "Failed to initialize NVML: Unknown Error". The processes go on: none is restarted.

    What was granted is in config.json and in gpuhook's ledger. Of a container that NVIDIA's own
    hook gave its GPUs, which leaves no such trace, the nodes count that it asks for and has.
    CONTAINER is named as in `gpuhook attach --help`.
    """
    if everything == bool(container):
        raise click.UsageError("name a CONTAINER, or --all")
    grants = options.grants()
    if container:
        with target.opened(container, state_roots, to_change=not dry_run) as found:
            report = repairing.repair(found, grants, is_dry=dry_run)
        options.show([report.document()], "repair", output)
        return
    reports: list[dict[str, Any]] = []
    failures: list[dict[str, str]] = []
    for result in _all(state_roots, grants, is_dry=dry_run):
        if "code" in result:
            failures.append(result)
            click.echo("Error {code}: {container}: {message}".format(**result), err=True)
            continue
        reports.append(result)
        if output == "text":
            options.show([result], "repair", output)
    if output == "json":
        options.show(reports, "repair", output, failures)
    elif not reports and not failures:
        click.echo("no running container was granted a GPU", err=True)
    if failures:
        raise click.exceptions.Exit(1)


def _all(
    state_roots: tuple[str, ...], grants: Granting, *, is_dry: bool
) -> Iterator[dict[str, Any]]:
    """Repair container after container; yields what was done to each, or why it could not be.

    Each by a process of its own: one container must not keep the others from being repaired.
    """
    for found in find.everything(state_roots):
        if found.owner not in (0, os.geteuid()):
            continue  # another user's own, and that user's to repair
        work = partial(_one, found, grants, is_dry=is_dry)
        try:
            result = apart.done(work, _SECONDS)
        except TimeoutError:
            result = _failure(found, fault("GH1760", container=found.id, seconds=_SECONDS))
        except OSError as error:  # it was killed, for want of memory perhaps
            result = _failure(found, worded(error))
        if result:
            yield result


def _one(found: Found, grants: Granting, *, is_dry: bool) -> dict[str, Any]:
    """Return what was done to a container, {} where it was granted nothing."""
    try:
        with target.held(found, to_change=not is_dry) as one:
            report = repairing.repair(one, grants, is_dry=is_dry)
            return report.document() if one.granted or report.steps else {}
    except (GpuhookError, OSError) as error:
        return _failure(found, worded(error))
    except Exception as error:  # no mistake of ours may end it for the others
        return _failure(found, fault("GH1758", kind=type(error).__name__, reason=error))


def _failure(found: Found, error: GpuhookError) -> dict[str, Any]:
    return {"container": found.id, "code": error.code, "message": printable(error.message, 4096)}
