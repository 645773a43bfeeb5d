# SPDX-License-Identifier: Apache-2.0
"""`gpuhook attach`: adds a GPU to a running container."""

from __future__ import annotations

import click

from gpuhook.cli.containers import limit_options
from gpuhook.cli.options import command_sections, parameters
from gpuhook.cli.options import container_options as options
from gpuhook.live import attach as attaching
from gpuhook.live import container_worker
from gpuhook.node import spec_node
from gpuhook.request import plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.target.running_container import Report, Target


@click.command(cls=command_sections.SectionedCommand)
@options.container
@options.device
@click.option(
    "--driver-capabilities",
    metavar="LIST",
    callback=parameters.capability_list,
    show_envvar=True,
    help="Which driver files and nodes to add: compute, utility, graphics, video, display, ngx, "
    "compat32, all, limited by request.driverCapabilities. Default: the container's "
    "NVIDIA_DRIVER_CAPABILITIES, or request.defaultDriverCapabilities.",
)
@limit_options.new_limit
@limit_options.new_request
@options.change_options
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
    """Add a GPU to a running CONTAINER: nodes, device rules, driver files, loader cache.

    The operation is atomic; repeating it changes nothing.

    The memory limit is set before the container gets the GPU: --memory-limit, or the limit that
    was granted when the container was created (by a device plugin, or NVIDIA_GPU_MEMORY_LIMIT). If
    the driver cannot enforce it, limits.onFailure of /etc/gpuhook/config.yaml decides: auto refuses
    a limit that this command or the container requested, and warns about others.

    The processes keep their environment. The config.json is not changed: after a restart the
    container does not have the GPU.
    """
    names, wish = _names(devices), limit_options.wish(limit, request)

    def attached(found: Target) -> Report:
        context = options.context(may_refresh=not dry_run)
        chosen = spec_node.known_capabilities(found.spec, context)
        if driver_capabilities is not None:
            chosen = plan.parse_capabilities(driver_capabilities, context.settings, context.node)
        return attaching.attach(found, context, names, chosen, wish=wish, is_dry=dry_run)

    with options.failing("attach", container, output):
        report = container_worker.work_on(container, state_roots, attached, to_change=not dry_run)
    if limit is not None:
        report.notes += limit_options.warnings(limit)
    options.show([report.document()], "attach", output)


def _names(devices: tuple[str, ...]) -> list[str]:
    names = options.names_of(devices)
    for name in names:
        if name.startswith("/"):
            what = f"{name} is a path, which only detach accepts; pass the GPU's index or UUID"
            raise click.BadParameter(what, param_hint="--device")
    return names
