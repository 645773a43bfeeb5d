# SPDX-License-Identifier: Apache-2.0
"""The options of commands that show who uses the GPUs, and their warnings."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial

import click

from gpuhook.cli.options import node_options
from gpuhook.device_plugin.kubelet import device_checkpoint
from gpuhook.errors import printable
from gpuhook.host import console, system_mounts
from gpuhook.usage import node_usage, usage_devices, visibility
from gpuhook.usage.node_usage import UsageQuestion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    from gpuhook.usage.node_usage import NodeUsage

    F = TypeVar("F", bound="Callable[..., Any]")

_NOT_ALLOWED = "GH1746"
_MAX_LINE = 4096


def options(command: F) -> F:
    """Add the options to a click command; they are the arguments of opened()."""
    no_nvml = click.option(
        "--no-nvml",
        is_flag=True,
        help="Do not query the driver: memory, processes and utilization remain unknown.",
    )
    root = click.option(
        "--kubelet-root",
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False),
        show_envvar=True,
        help="The kubelet's --root-dir, whose checkpoint lists the replicas of each pod. "
        f"Default: the first of {', '.join(device_checkpoint.ROOTS)} that exists.",
    )
    return no_nvml(root(command))


@contextmanager
def opened(
    *,
    no_nvml: bool = False,
    kubelet_root: str | None = None,
    state_roots: tuple[str, ...] = (),
    recorded: bool = False,
    is_judged: bool = False,
    **library: Any,
) -> Iterator[Callable[[], NodeUsage]]:
    """Yield a function that reads the usage of the GPUs now; the driver remains open."""
    system_mounts.require()
    place = device_checkpoint.root() if kubelet_root is None else kubelet_root
    question = UsageQuestion(state_roots, place, only_recorded=recorded, is_judged=is_judged)
    if no_nvml:
        yield lambda: node_usage.look(question, usage_devices.known_devices())
        return
    with usage_devices.opened(partial(node_options.library, **library)) as devices:
        yield lambda: node_usage.look(question, devices())


def print_warnings(usage: NodeUsage) -> list[str]:
    """Print the warnings on standard error; return those about missing permissions."""
    hidden, others = _warnings(usage)
    for text in (*hidden, *others):
        console.warn(text)
    return hidden


def warnings(usage: NodeUsage) -> list[str]:
    """Return the warnings about what could not be read."""
    return [text for part in _warnings(usage) for text in part]


def heading(usage: NodeUsage) -> str:
    """Return the heading of one of several outputs: the time and the warnings."""
    lines = [time.strftime("%Y-%m-%d %H:%M:%S %z")]
    lines += [f"warning: {printable(text, _MAX_LINE)}" for text in warnings(usage)]
    return "\n".join(lines) + "\n"


def _warnings(usage: NodeUsage) -> tuple[list[str], list[str]]:
    """Return the warnings about missing permissions, and all others."""
    hidden = visibility.warnings()
    if not hidden:  # else those name the missing permissions
        denied = [one.message for one in usage.trouble if one.code == _NOT_ALLOWED]
        hidden = [f"{message}; run as root to see all containers" for message in denied]
    others = [
        f"{one.code}: {one.message}; {one.hint}"
        for one in usage.trouble
        if one.code != _NOT_ALLOWED
    ]
    return hidden, [*others, *usage.warnings]
