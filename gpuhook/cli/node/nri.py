# SPDX-License-Identifier: Apache-2.0
"""`gpuhook nri`: the plugin by which containerd and CRI-O give containers their GPUs."""

from __future__ import annotations

from typing import Any

import click

from gpuhook.cli.options import command_sections
from gpuhook.host import logs
from gpuhook.nri import nri_process
from gpuhook.nri.nri_process import NriOptions
from gpuhook.nri.policy import kubelet_grants


def _named(_ctx: click.Context, _option: click.Parameter, value: str) -> str:
    """Return the name of a plugin; raises BadParameter for one that a runtime refuses."""
    if not value.isprintable() or not value or set(value) & set("/ "):
        raise click.BadParameter("a name has no space and no slash, and is not empty")
    return value


@click.group(cls=command_sections.Sentences)
def nri() -> None:
    """Give containers their GPUs without a runtime configuration, by NRI."""


@nri.command()
@click.option(
    "--socket",
    "socket_path",
    default=nri_process.SOCKET,
    show_default=True,
    envvar="GPUHOOK_NRI_SOCKET",
    show_envvar=True,
    help="The NRI socket of containerd or CRI-O.",
)
@click.option(
    "--name",
    callback=_named,
    default="gpuhook",
    show_default=True,
    envvar="GPUHOOK_NRI_NAME",
    show_envvar=True,
    help="The plugin's name for the runtime.",
)
@click.option(
    "--index",
    type=click.IntRange(0, 99),
    default=10,
    show_default=True,
    envvar="GPUHOOK_NRI_INDEX",
    show_envvar=True,
    help="The order among plugins: the runtime asks those with a lower index first.",
)
@click.option(
    "--expanded",
    "is_expanded",
    is_flag=True,
    envvar="GPUHOOK_NRI_EXPANDED",
    show_envvar=True,
    help="Add devices, mounts and hooks one by one also if the runtime applies CDI names. The "
    "driver capabilities of a container then apply.",
)
@click.option(
    "--hook",
    default="",
    envvar="GPUHOOK_NRI_HOOK",
    show_envvar=True,
    metavar="PATH",
    help="The path of gpuhook-hook on the host, if this process runs in a container.",
)
@click.option(
    "--metrics-address",
    default="",
    envvar="GPUHOOK_NRI_METRICS_ADDRESS",
    show_envvar=True,
    metavar="HOST:PORT",
    help="Serve Prometheus metrics at http://HOST:PORT/metrics.",
)
@click.option(
    "--plugin-directory",
    default=kubelet_grants.DIRECTORY,
    show_default=True,
    envvar="GPUHOOK_NRI_PLUGIN_DIRECTORY",
    show_envvar=True,
    metavar="DIR",
    help="The kubelet's directory of device plugins, with the record of what they assigned.",
)
@click.option(
    "--wait",
    "is_waiting",
    is_flag=True,
    envvar="GPUHOOK_NRI_WAIT",
    show_envvar=True,
    help="Wait for a socket that does not exist yet.",
)
@click.pass_context
def run(ctx: click.Context, /, index: int, **given: Any) -> None:
    """Run the NRI plugin of this node until SIGTERM.

    The plugin connects to the runtime's socket, and connects again if the runtime restarts. The
    runtime then asks it about each new container. A container that requests GPUs gets what
    gpuhook-runtime would give it; a container that was assigned a GPU and cannot get it does not
    start. Other containers remain as they are.
    """
    main = ctx.find_root().params
    logs.configure(main.get("log_format", "text"), debug=bool(main.get("debug")))
    ctx.exit(nri_process.NriProcess(NriOptions(index=f"{index:02d}", **given)).run())
