# SPDX-License-Identifier: Apache-2.0
"""`gpuhook nri`: the plugin by which containerd and CRI-O give containers their GPUs."""

from __future__ import annotations

from typing import Any

import click

from gpuhook.cli.options import command_sections, parameters, plugin_command
from gpuhook.nri.nri_options import NriOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    F = TypeVar("F", bound="Callable[..., Any]")


def _named(_ctx: click.Context, _option: click.Parameter, value: str) -> str:
    """Return the name of a plugin; raises BadParameter for one that a runtime refuses."""
    if not value.isprintable() or not value or set(value) & set("/ "):
        raise click.BadParameter("a name has no space and no slash, and is not empty")
    return value


@click.group(cls=command_sections.Sentences)
def nri() -> None:
    """Give containers their GPUs by NRI, without configuring a runtime."""


def _option(name: str, variable: str, **settings: Any) -> Callable[[F], F]:
    """Return the decorator of an option that a variable can set, too."""
    settings.setdefault("show_default", settings.get("default") is not None)
    names, envvar = name.split(), f"GPUHOOK_NRI_{variable}"
    return click.option(*names, envvar=envvar, show_envvar=True, **settings)


@nri.command()
@_option(
    "--socket socket_path",
    "SOCKET",
    metavar="PATH",
    default="/var/run/nri/nri.sock",
    callback=parameters.not_empty,
    help="The NRI socket of containerd or CRI-O.",
)
@_option(
    "--name",
    "NAME",
    metavar="NAME",
    default="gpuhook",
    callback=_named,
    help="The name with which the plugin registers.",
)
@_option(
    "--index",
    "INDEX",
    metavar="NUMBER",
    type=click.IntRange(0, 99),
    default=10,
    help="The order of plugins: the runtime calls the plugin with the lowest index first.",
)
@_option(
    "--expanded is_expanded",
    "EXPANDED",
    is_flag=True,
    help="Add each device, mount and hook, even if the runtime applies CDI device names. Then "
    "NVIDIA_DRIVER_CAPABILITIES selects the driver's files.",
)
@_option(
    "--hook",
    "HOOK",
    callback=parameters.not_empty,
    metavar="PATH",
    help="The path of gpuhook-hook on the host, if this process runs in a container.",
)
@_option(
    "--metrics-address",
    "METRICS_ADDRESS",
    callback=parameters.not_empty,
    metavar="HOST:PORT",
    help="Serve Prometheus metrics at http://HOST:PORT/metrics.",
)
@_option(
    "--plugin-directory",
    "PLUGIN_DIRECTORY",
    callback=parameters.not_empty,
    metavar="DIRECTORY",
    help="The kubelet's directory of device plugins, whose checkpoint lists the assigned devices. "
    "Default: /var/lib/kubelet/device-plugins.",
)
@_option(
    "--wait is_waiting", "WAIT", is_flag=True, help="Wait for a socket that does not exist yet."
)
@click.pass_context
def run(ctx: click.Context, /, index: int, **given: Any) -> None:
    """Run the NRI plugin of this node until SIGTERM or SIGINT.

    The plugin connects to the socket of containerd or CRI-O, and connects again if that restarts.
    The runtime calls the plugin before it creates a container. A container that requests GPUs gets
    the same devices as from gpuhook-runtime. If an assigned GPU cannot be provided, the container
    does not start. Other containers are not changed.
    """
    options = NriOptions(index=f"{index:02d}", **given)
    plugin_command.run(ctx, "gpuhook.nri.nri_process", options, "", "ssl", "rich")
