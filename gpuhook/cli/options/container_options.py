# SPDX-License-Identifier: Apache-2.0
"""Options, plan context and report of the commands on a running container."""

from __future__ import annotations

import inspect
import sys
from contextlib import contextmanager

import click

from gpuhook.cdi import spec_file
from gpuhook.cli.options import parameters
from gpuhook.containers import find, state_search
from gpuhook.entry import cold_command
from gpuhook.entry.plan_context import context_of
from gpuhook.errors import GpuhookError, printable
from gpuhook.host import console
from gpuhook.host.error_text import worded
from gpuhook.host.warm.terminal_log import TerminalLog
from gpuhook.node import settings_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from gpuhook.cli.options.parameters import F
    from gpuhook.entry.plan_context import PlanContext

_MAX_LINE = 4096
_NAMES = """\
CONTAINER is an id or a prefix of one; a name in Docker, podman or nerdctl; a Compose service, as
service or project/service; a pod, as namespace/pod or namespace/pod/container; or the pid of a
process in the container. Ids take precedence over names; if several containers match, the error
lists them.
"""


def _container(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise click.BadParameter("the name of a container is empty", ctx, param)
    return value


def running(
    ctx: click.Context,  # noqa: ARG001 # click's signature
    param: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[str]:
    """Return the names and the ids of running containers that begin so, for shell completion."""
    try:
        living, _ = find.visible()
    except (GpuhookError, OSError):
        return []  # completion cannot show the reason
    known = [word for found in living for word in (state_search.name_of(found), found.id)]
    return [word for word in dict.fromkeys(known) if word.startswith(incomplete)]


def named(command: F) -> F:
    """Add the names of a CONTAINER to the help of a command."""
    command.__doc__ = f"{inspect.cleandoc(command.__doc__ or '')}\n\n{_NAMES}"
    return command


def container(command: F) -> F:
    """Add the argument CONTAINER."""
    return named(_ARGUMENT(command))


def container_or_none(command: F) -> F:
    """Add the argument CONTAINER, which can be left out."""
    return named(_OPTIONAL_ARGUMENT(command))


_ARGUMENT = click.argument("container", callback=_container, shell_complete=running)
_OPTIONAL_ARGUMENT = click.argument(
    "container", required=False, callback=_container, shell_complete=running
)
state_root = click.option(
    "--state-root",
    "state_roots",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    multiple=True,
    show_envvar=True,
    help="A runtime's state directory (its --root), in addition to "
    "those of the engines; repeatable, colon-separated in the environment.",
)
# Its name is part of the variable, such as GPUHOOK_ATTACH_DRY_RUN.
dry_run = click.option(
    "--dry-run", is_flag=True, help="Print what would be done without changing anything."
)
everything = click.option(
    "--all", "everything", is_flag=True, help="All running containers of this node."
)
output = parameters.output("text", "json", "yaml")
device = click.option(
    "-d",
    "--device",
    "devices",
    metavar="NAME",
    multiple=True,
    required=True,
    show_envvar=True,
    help="A GPU: index or range of indices (0-3), UUID (or a prefix of it), PCI "
    "bus id, replica id or CDI name, `all`, or `none` for only the driver's files; repeatable, "
    "or comma-separated.",
)


def change_options(command: F) -> F:
    """Add the options of a command that changes containers: --state-root, --dry-run, --output."""
    return parameters.with_options(command, (state_root, dry_run, output))


def require_choice(container: str | None, *, everything: bool) -> None:
    """Raise a usage error unless either a container or --all is given."""
    if container and everything:
        raise click.UsageError("pass a CONTAINER or --all, not both")
    if not (container or everything):
        raise click.UsageError("name a CONTAINER, or --all")


def names_of(devices: Sequence[str]) -> list[str]:
    """Return the device names of a repeatable option; a usage error if there are none."""
    names = [name.strip() for value in devices for name in value.split(",")]
    names = [name for name in dict.fromkeys(names) if name]
    if not names:
        raise click.BadParameter("it names no device", param_hint="--device")
    return names


def context(*, may_refresh: bool = False) -> PlanContext:
    """Return the plan context of this node, with its settings; GH1530 if they are broken.

    With `may_refresh`, stale specs are refreshed if the settings allow it.
    """
    refresh = cold_command.Compiler(sys.argv[0]).refresh if may_refresh else None
    chosen = settings_file.of_node()
    return context_of(
        chosen, TerminalLog("gpuhook"), spec_file.compile_specs, refresh, has_others=True
    )


@contextmanager
def failing(verb: str, container: str, output: str) -> Iterator[None]:
    """Show the progress of work on a container, and print its fault also as a document.

    With the output text, only the caller prints the fault.
    """
    try:
        with console.progress(f"{verb.replace('-', ' ')} {_printable(container)}"):
            yield
    except (GpuhookError, OSError) as error:
        if output != "text":
            show([], verb, output, [failure(container, worded(error))])
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
    """Print the documents of Reports, one for each container.

    `verb` is in the name of the schema; `failures` are the containers that failed: container, code
    and message.
    """
    if output != "text":
        document = {
            "schema": f"gpuhook/{verb}/v1",
            "containers": list(documents),
            "failures": list(failures),
        }
        console.document(document, output)
        return
    for report in documents:
        for line in _lines(report):
            click.echo(_printable(line))
        without = "" if verb == "detach" else "without "
        for note in [*(without + what for what in report["skipped"]), *report["notes"]]:
            console.note(note)
        for what in report["left"]:
            click.echo(f"left over: {_printable(what)}", err=True)


def _lines(report: dict[str, Any]) -> list[str]:
    if not report["steps"]:
        return [f"{report['container']}: nothing to do"]
    head = "would do" if report["dryRun"] else "done"
    return [f"{report['container']}: {head}", *(f"  {step}" for step in report["steps"])]
