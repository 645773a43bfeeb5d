# SPDX-License-Identifier: Apache-2.0
"""What the commands on a running container share: options, the plan context, the report."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

import click

from gpuhook.cdi import spec_file
from gpuhook.cdi.hot import compile as compiler
from gpuhook.cli.options import parameters
from gpuhook.containers.warm import find
from gpuhook.entry import cold_command
from gpuhook.entry.plan_context import PlanContext
from gpuhook.errors import GpuhookError, printable
from gpuhook.host import console
from gpuhook.host.error_text import worded
from gpuhook.host.warm.terminal_log import TerminalLog
from gpuhook.node import settings_file
from gpuhook.vendors.nvidia.hot.nvidia_node import NvidiaNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from gpuhook.cdi.hot.registry import Registry

_MAX_LINE = 4096


def _container(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the name of a container; a usage error if it is empty."""
    if value is not None and not value.strip():
        raise click.BadParameter("the name of a container is not empty", ctx, param)
    return value


def _running(
    ctx: click.Context,  # noqa: ARG001 # click's signature
    param: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[str]:
    """Return the containers whose names begin so, for a shell that completes them."""
    try:
        living, _ = find.everything()
        return [found.id for found in living if found.id.startswith(incomplete)]
    except (GpuhookError, OSError):
        return []  # a shell has nowhere to show why


container = click.argument("container", callback=_container, shell_complete=_running)
container_or_none = click.argument(
    "container", required=False, callback=_container, shell_complete=_running
)
state_root = click.option(
    "--state-root",
    "state_roots",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    multiple=True,
    show_envvar=True,
    help="A directory in which a runtime keeps its containers' state (its --root), besides those "
    "where engines have theirs; repeatable, in the environment separated by colons.",
)
dry_run = click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
output = parameters.output("text", "json", "yaml")
device = click.option(
    "--device",
    "devices",
    metavar="NAME",
    multiple=True,
    required=True,
    show_envvar=True,
    help="An index or a range of indices (0-3), UUID (or its beginning, as `gpuhook ps` shows it), "
    "PCI bus id, replica id or CDI name, `all`, or `none` for the driver's files alone; "
    "repeatable, and comma lists are taken.",
)


def names_of(devices: Sequence[str]) -> list[str]:
    """Return the device names of a repeatable option; a usage error if there are none."""
    names = [name.strip() for value in devices for name in value.split(",")]
    names = [name for name in dict.fromkeys(names) if name]
    if not names:
        raise click.BadParameter("it names no device", param_hint="--device")
    return names


class _KeptNode(NvidiaNode):
    """This node by its specs as they are at first: a command is over soon."""

    _registry: Registry | None = None

    def registry(self) -> Registry:
        """Return the registry of this node's CDI specs."""
        if self._registry is None:
            self._registry = super().registry()
        return self._registry

    def forget(self) -> None:
        """Read the specs again when they are needed."""
        self._registry = None


def context(*, may_refresh: bool = False) -> PlanContext:
    """Return what this node plans by, with its settings; GH1530 if they are broken.

    With `may_refresh`, stale specs are refreshed if the settings say so.
    """
    refresh = cold_command.Compiler(sys.argv[0]).refresh if may_refresh else None
    chosen = settings_file.of_node()
    return PlanContext(chosen, _KeptNode(chosen, _compile), TerminalLog("gpuhook"), refresh)


def _compile(path: str) -> None:
    compiler.compile_with(spec_file.parser(path), path, os.stat(path))


@contextmanager
def failing(verb: str, container: str, output: str) -> Iterator[None]:
    """Print the fault that ends a command as a document too, where that was asked for."""
    try:
        yield
    except (GpuhookError, OSError) as error:
        if output != "text":
            told = failure(container, worded(error))
            show([], verb, output, [told])
        raise


def failure(container: str, error: GpuhookError) -> dict[str, str]:
    """Return a fault as the documents have it."""
    return {"container": container, "code": error.code, "message": _printable(error.message)}


def _printable(text: str) -> str:
    return printable(text, _MAX_LINE)


def show(
    documents: Sequence[dict[str, Any]],
    verb: str,
    output: str,
    failures: Sequence[dict[str, str]] = (),
) -> None:
    """Print what was done to each container, of which a Report's document tells.

    `verb` is the command's, as in JSON's schema; `failures` are (container, code, message) of
    those to which nothing could be done.
    """
    if output != "text":
        document = {
            "schema": f"gpuhook/{verb}/v1",
            "containers": list(documents),
            "failures": list(failures),
        }
        console.document(document, output)
        return
    for told in documents:
        for line in _lines(told):
            click.echo(_printable(line))
        without = "" if verb == "detach" else "without "
        for note in [*(without + what for what in told["skipped"]), *told["notes"]]:
            click.echo(f"note: {_printable(note)}", err=True)
        for what in told["left"]:
            click.echo(f"left over: {_printable(what)}", err=True)


def _lines(told: dict[str, Any]) -> list[str]:
    if not told["steps"]:
        return [f"{told['container']}: nothing to do"]
    head = "would do" if told["dryRun"] else "done"
    return [f"{told['container']}: {head}", *(f"  {step}" for step in told["steps"])]
