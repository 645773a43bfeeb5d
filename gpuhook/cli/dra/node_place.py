# SPDX-License-Identifier: Apache-2.0
"""The options of commands that look at the drivers of this node from outside."""

from __future__ import annotations

import os
from typing import Any, TypeVar

import click

from gpuhook.cli.options import parameters, plugin_command
from gpuhook.device_plugin.kubelet import device_checkpoint
from gpuhook.host.hot import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])


def options(command: F) -> F:
    """Add the options to a click command; they are the arguments of place()."""
    root = click.option(
        "--kubelet-root",
        metavar="DIRECTORY",
        type=click.Path(exists=True, file_okay=False),
        envvar="GPUHOOK_KUBELET_ROOT",
        show_envvar=True,
        help="The kubelet's --root-dir. Default: the first of "
        f"{', '.join(device_checkpoint.ROOTS)} that exists.",
    )
    cdi = click.option(
        "--cdi-directory",
        metavar="DIRECTORY",
        default="/var/run/cdi",
        callback=parameters.not_empty,
        show_default=True,
        envvar="GPUHOOK_CDI_DIRECTORY",
        show_envvar=True,
        help="The directory of the CDI specs of claims.",
    )
    decorated: F = parameters.with_options(command, [root, cdi])
    return decorated


def place(kubelet_root: str | None, cdi_directory: str) -> Any:
    """Return the DriverPlace of the options; GH1805 if gRPC is not installed."""
    found = imported("local_driver")
    root = kubelet_root or device_checkpoint.root() or device_checkpoint.ROOTS[0]
    return found.DriverPlace(os.path.abspath(root), cdi_directory, state.host_root())


def imported(name: str) -> Any:
    """Return a module of node_drivers; GH1805 if the packages that it needs are not installed."""
    return plugin_command.imported(f"gpuhook.dra.node_drivers.{name}")
