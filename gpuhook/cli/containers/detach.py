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
    help="Remove the device even if a process in the container has it open. The open file works "
    "until it is closed; opening it again fails.",
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

    --device also accepts a device node such as /dev/nvidia0, which is the only name of a GPU that
    fell off the bus. Removing the last GPU also removes the control nodes and driver files that
    were added while the container ran; if no GPU is left, `--device none` removes them. Detaching a
    replica removes its device, unless another request also assigns that device to the container.

    After a restart, the container has the devices of its config.json again. The exit status is also
    1 if a process still has the GPU open; it can keep using the open file, but the container cannot
    open the device again.
    """
    names = options.names_of(devices)

    def detached(found: Target) -> Report:
        return detaching.detach(found, options.context(), names, force=force, is_dry=dry_run)

    with options.failing("detach", container, output):
        report = container_worker.work_on(container, state_roots, detached, to_change=not dry_run)
    options.show([report.document()], "detach", output)
    if report.left:
        raise click.exceptions.Exit(1)
