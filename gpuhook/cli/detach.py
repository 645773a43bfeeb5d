# SPDX-License-Identifier: Apache-2.0
"""`gpuhook detach`: a GPU taken away from a container that runs."""

from __future__ import annotations

import click

from gpuhook.cli.options import container_options as options
from gpuhook.live import container_worker
from gpuhook.live import detach as detaching

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.target.running_container import Report, Target


@click.command()
@options.container
@options.device
@click.option(
    "--force",
    is_flag=True,
    help="Also while a process of the container has the device open: it keeps what it has open, "
    "and nobody opens it anew.",
)
@options.state_root
@options.dry_run
@options.output
def detach(
    *,
    container: str,
    devices: tuple[str, ...],
    force: bool,
    state_roots: tuple[str, ...],
    dry_run: bool,
    output: str,
) -> None:
    """Take a GPU away from a running CONTAINER (as in `gpuhook attach --help`).

    A device may also be named by its node, /dev/nvidia0: one that fell off the bus has no other
    name left. Control nodes and driver files go with the last GPU, or as `none` where there is no
    GPU, and only if they came while the container ran. A replica takes its device along unless the
    container holds that besides.

    What config.json gives comes back when the container is started again. Exit status 1 also where
    the container held on to a file: it cannot open the device all the same.
    """
    names = options.names_of(devices)

    def detached(found: Target) -> Report:
        return detaching.detach(found, options.context(), names, force=force, is_dry=dry_run)

    with options.failing("detach", container, output):
        report = container_worker.work_on(container, state_roots, detached, to_change=not dry_run)
    options.show([report.document()], "detach", output)
    if report.left:
        raise click.exceptions.Exit(1)
