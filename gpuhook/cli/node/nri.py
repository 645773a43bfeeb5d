# SPDX-License-Identifier: Apache-2.0
"""`gpuhook nri`: the plugin by which containerd and CRI-O give containers their GPUs."""

from __future__ import annotations

from typing import Any

import click

from gpuhook.cli.options import command_sections, parameters
from gpuhook.host import logs
from gpuhook.nri import nri_process
from gpuhook.nri.nri_process import NriOptions
from gpuhook.nri.policy import kubelet_grants

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
    """Give containers their GPUs without a runtime configuration, by NRI."""


def _option(name: str, variable: str, **settings: Any) -> Callable[[F], F]:
    """Return the decorator of an option that a variable can set, too."""
    settings.setdefault("show_default", settings.get("default") is not None)
    names, envvar = name.split(), f"GPUHOOK_NRI_{variable}"
    return click.option(*names, envvar=envvar, show_envvar=True, **settings)


@nri.command()
@_option(
    "--socket socket_path",
    "SOCKET",
    default=nri_process.SOCKET,
    callback=parameters.not_empty,
    help="The NRI socket of containerd or CRI-O.",
)
@_option(
    "--name", "NAME", default="gpuhook", callback=_named, help="The plugin's name for the runtime."
)
@_option(
    "--index",
    "INDEX",
    type=click.IntRange(0, 99),
    default=10,
    help="The order among plugins: the runtime asks those with a lower index first.",
)
@_option(
    "--expanded is_expanded",
    "EXPANDED",
    is_flag=True,
    help="Add devices, mounts and hooks one by one also if the runtime applies CDI names. The "
    "driver capabilities of a container then apply.",
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
    default=kubelet_grants.DIRECTORY,
    callback=parameters.not_empty,
    metavar="DIR",
    help="The kubelet's directory of device plugins, with the record of what they assigned.",
)
@_option(
    "--wait is_waiting", "WAIT", is_flag=True, help="Wait for a socket that does not exist yet."
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
