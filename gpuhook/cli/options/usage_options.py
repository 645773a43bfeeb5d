# SPDX-License-Identifier: Apache-2.0
"""How commands look at who uses the GPUs, and what they say of what could not be seen."""

from __future__ import annotations

import time
from contextlib import contextmanager

import click

from gpuhook.cli.options import node_options
from gpuhook.errors import GpuhookError, printable
from gpuhook.host import console
from gpuhook.usage import kubelet_units, node_usage, visibility
from gpuhook.usage.gpu_readings import DriverReading, UsageLook
from gpuhook.usage.node_usage import UsageQuestion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    from gpuhook.usage.node_usage import NodeUsage

    F = TypeVar("F", bound="Callable[..., Any]")

_NO_LIBRARY = "GH1200"  # a node without a driver: there is nothing to be told about it
_NOT_ALLOWED = "GH1746"
_MAX_LINE = 4096


def options(command: F) -> F:
    """Add the options of looking to a click command; they are the arguments of opened()."""
    no_nvml = click.option(
        "--no-nvml",
        is_flag=True,
        help="Do not ask the driver: memory, processes and how busy they are stay unknown.",
    )
    root = click.option(
        "--kubelet-root",
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False),
        show_envvar=True,
        help="The kubelet's --root-dir, with the checkpoint that lists who holds which replica. "
        f"Default: the first that exists of {', '.join(kubelet_units.ROOTS)}.",
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
    """Give what looks at who uses the GPUs now; the driver stays open in between."""
    place = kubelet_units.root() if kubelet_root is None else kubelet_root
    wanted = UsageQuestion(state_roots, place, only_recorded=recorded, is_judged=is_judged)
    if no_nvml:
        yield lambda: node_usage.look(wanted, UsageLook(is_asked=False))
        return
    try:
        path = node_options.library(**library)
    except GpuhookError as error:
        trouble = error
        yield lambda: node_usage.look(wanted, UsageLook(trouble=trouble))
        return
    with DriverReading(path) as driver:
        yield lambda: node_usage.look(wanted, driver.look())


def tell(usage: NodeUsage) -> list[str]:
    """Say on standard error what could not be seen; returns what was hidden from this user."""
    hidden, others = _wrong(usage)
    for text in (*hidden, *others):
        console.warn(text)
    return hidden


def has_no_driver(usage: NodeUsage) -> bool:
    """Return whether there was no driver to be asked: that is no warning, but explains much."""
    return any(one.code == _NO_LIBRARY for one in usage.trouble)


def wrong(usage: NodeUsage) -> list[str]:
    """Return what could not be seen, in sentences."""
    return [text for part in _wrong(usage) for text in part]


def heading(usage: NodeUsage) -> str:
    """Return what stands above a look that is one of many: when it was, and what is wrong."""
    lines = [time.strftime("%Y-%m-%d %H:%M:%S %z")]
    lines += [f"warning: {printable(text, _MAX_LINE)}" for text in wrong(usage)]
    return "\n".join(lines) + "\n"


def _wrong(usage: NodeUsage) -> tuple[list[str], list[str]]:
    """Return what this user may not see, and what else could not be seen, in sentences."""
    hidden = visibility.warnings()
    faults = [one for one in usage.trouble if one.code != _NO_LIBRARY]
    if not hidden:  # else that it was run without rights is said already
        hidden = [one.message for one in faults if one.code == _NOT_ALLOWED]
    others = [
        f"{one.code}: {one.message}; {one.hint}" for one in faults if one.code != _NOT_ALLOWED
    ]
    return hidden, [*others, *usage.warnings]
