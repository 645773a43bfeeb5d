# SPDX-License-Identifier: Apache-2.0
"""`gpuhook attach`: a GPU for a container that runs."""

from __future__ import annotations

import click

from gpuhook.cli.options import container_options as options
from gpuhook.cli.options import limit_options, parameters
from gpuhook.live import attach as attaching
from gpuhook.live import container_worker
from gpuhook.request import plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.target.running_container import Report, Target


@click.command()
@options.container
@options.device
@click.option(
    "--driver-capabilities",
    metavar="LIST",
    callback=parameters.capability_list,
    show_envvar=True,
    help="Which nodes and files of the driver come along: compute, utility, graphics, video, "
    "display, ngx, compat32, all, as far as request.driverCapabilities allows them. Default: what "
    "the container's NVIDIA_DRIVER_CAPABILITIES names, or request.defaultDriverCapabilities.",
)
@limit_options.new_limit
@limit_options.new_request
@options.state_root
@options.dry_run
@options.output
def attach(
    *,
    container: str,
    devices: tuple[str, ...],
    driver_capabilities: str | None,
    limit: int | None,
    request: int | None,
    state_roots: tuple[str, ...],
    dry_run: bool,
    output: str,
) -> None:
    """Give a running CONTAINER a GPU: nodes, device rules, driver files, loader cache.

    CONTAINER is an id or the beginning of one, a pid of one of its processes, or its pod as
    namespace/pod/container. All is done, or nothing; a second time changes nothing.

    Its memory of the GPU is limited as it was granted when the container was made (by a device
    plugin, or NVIDIA_GPU_MEMORY_LIMIT), or by --memory-limit, before it has the GPU. Where the
    driver does not hold the limit, limits.onFailure of /etc/gpuhook/config.yaml decides: auto
    refuses one that was asked for, here or by the container, and warns of others.

    Its processes keep their environment, and a restart of the container does not bring the GPU
    back, as its config.json does not have it.
    """
    names, wish = options.names_of(devices), limit_options.wish(limit, request)
    paths = [name for name in names if name.startswith("/")]
    if paths:
        what = f"{paths[0]} is a path, and only detach takes those; give the GPU's index or UUID"
        raise click.BadParameter(what, param_hint="--device")

    def attached(found: Target) -> Report:
        context = options.context(may_refresh=not dry_run)
        chosen = found.capabilities(context)
        if driver_capabilities is not None:
            chosen = plan.parse_capabilities(driver_capabilities, context.settings, context.node)
        return attaching.attach(found, context, names, chosen, wish=wish, is_dry=dry_run)

    with options.failing("attach", container, output):
        report = container_worker.work_on(container, state_roots, attached, to_change=not dry_run)
    if limit is not None:
        report.notes += limit_options.warnings(limit)
    options.show([report.document()], "attach", output)
