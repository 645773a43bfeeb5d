# SPDX-License-Identifier: Apache-2.0
"""`gpuhook dra drain`: ends the prepared claims of this node before an uninstallation."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import click

from gpuhook.cli.dra import node_place
from gpuhook.cli.options import command_sections, parameters
from gpuhook.device_plugin.api_server.service_account import SERVICE_ACCOUNT, in_cluster
from gpuhook.errors import GpuhookError
from gpuhook.host import console
from gpuhook.host.error_text import worded


@click.command(cls=command_sections.SectionedCommand)
@node_place.options
@click.option(
    "--force",
    is_flag=True,
    help="Also end claims that running pods use; their containers continue.",
)
@click.option(
    "--wait",
    metavar="SECONDS",
    type=click.FloatRange(0, 86400),
    default=150.0,
    show_default=True,
    help="How long to wait for the kubelet, which calls the driver again each minute.",
)
@click.option(
    "--node-name",
    metavar="NAME",
    callback=parameters.not_empty,
    envvar="NODE_NAME",
    show_envvar=True,
    help="The name of this node in the cluster, to delete its ResourceSlices.",
)
@click.option(
    "--service-account",
    metavar="DIRECTORY",
    default=SERVICE_ACCOUNT,
    callback=parameters.not_empty,
    show_default=True,
    envvar="GPUHOOK_SERVICE_ACCOUNT",
    show_envvar=True,
    help="The directory with the token and the ca.crt of a service account.",
)
def drain(
    kubelet_root: str | None, cdi_directory: str, force: bool, wait: float, **account: Any
) -> None:
    """End the prepared claims of this node, so that its DRA drivers can be uninstalled.

    Run it after the drivers have stopped. A pod with a claim remains in Terminating until its
    driver answers the kubelet; this command answers in the driver's place. It removes the CDI specs
    and the checkpoint entries of the claims, and restores their time slices and compute modes. In a
    pod with permission, it deletes the node's ResourceSlices; otherwise the kubelet deletes them
    after a while. If a pod still uses a claim, the command prints the pod's name and changes
    nothing.
    """
    place = node_place.place(kubelet_root, cdi_directory)
    drivers = node_place.imported("local_driver").node_drivers(place)
    work = node_place.imported("driver_drain")
    if not drivers:
        console.say(f"no DRA driver of gpuhook has run on this node ({place.kubelet})")
        return
    if not force:
        work.require_unused(place.kubelet, drivers)
    for driver in drivers:
        if work.is_running(driver):
            console.warn(f"{driver.name} still runs, and prepares new claims: stop it first")
        else:
            _delete_slices(work, driver.name, **account)
        for line in work.end_claims(driver):
            click.echo(line)
    asyncio.run(work.release(place.kubelet, drivers, wait, console.say))
    if not any(work.is_running(one) for one in drivers):
        _restore_modes(work, place.host_root)  # last: a driver that hangs does not answer
    console.say("the kubelet has no claim of these drivers")


def _restore_modes(work: Any, host_root: str) -> None:
    """Restore the modes of GPUs; a driver that does not answer is a warning."""
    from gpuhook.device_plugin.config.launch_options import Launch

    driver, dev = (os.environ.get(f"GPUHOOK_{name}_ROOT") for name in ("DRIVER", "DEV"))
    launch = Launch(host_root=host_root, node_driver_root=driver, node_dev_root=dev)
    try:
        lines = work.restore_modes(launch)
    except (GpuhookError, OSError) as raised:
        error = worded(raised)
        console.warn(f"{error.code}: {error.message}; the modes of GPUs are not restored")
    else:
        for line in lines:
            click.echo(line)


def _delete_slices(work: Any, driver: str, node_name: str | None, service_account: str) -> None:
    """Delete the slices of a driver if the API server can be used; its failure is a warning."""
    try:
        count = work.delete_slices(driver, node_name, in_cluster(os.environ, service_account))
    except GpuhookError as error:
        console.warn(f"{error.code}: {error.message}; the kubelet deletes the ResourceSlices")
    else:
        if count is not None:
            click.echo(f"deleted {count} ResourceSlices of {driver}")
