# SPDX-License-Identifier: Apache-2.0
"""`gpuhook detach`: removes a GPU from a running container."""

from __future__ import annotations

import click

from gpuhook.cli.options import command_sections
from gpuhook.cli.options import container_options as options
from gpuhook.live import container_worker
from gpuhook.live import detach as detaching

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.target.running_container import Report, Target


@click.command(cls=command_sections.SectionedCommand)
@options.container
@options.device
@click.option(
    "--force",
    is_flag=True,
    help="Remove the device even if a process of the container has it open: the open file works "
    "until it is closed, new opens fail.",
)
@options.change_options
def detach(
    *,
    container: str,
    devices: tuple[str, ...],
    force: bool,
    state_roots: tuple[str, ...],
    dry_run: bool,
    output: str,
) -> None:
    """Remove a GPU from a running CONTAINER.

    --device also takes a device node, /dev/nvidia0: a GPU that fell off the bus has no other name.
    Control nodes and driver files that were added while the container ran are removed with its last
    GPU; from a container without a GPU, `--device none` removes them. A replica removes its device
    unless the container also has the device by another request.

    A restart of the container adds the devices of its config.json again. The exit status is also 1
    if a process keeps a file of the GPU open; the container cannot open the device again.
    """
    names = options.names_of(devices)

    def detached(found: Target) -> Report:
        return detaching.detach(found, options.context(), names, force=force, is_dry=dry_run)

    with options.failing("detach", container, output):
        report = container_worker.work_on(container, state_roots, detached, to_change=not dry_run)
    options.show([report.document()], "detach", output)
    if report.left:
        raise click.exceptions.Exit(1)
