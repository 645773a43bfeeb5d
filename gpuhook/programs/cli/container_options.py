# SPDX-License-Identifier: Apache-2.0
"""What the commands on a running container share: options, the node's grants, and the report."""

from __future__ import annotations

import json
import os

import click

from gpuhook import settings
from gpuhook.cdi import compile as compiler
from gpuhook.cdi import spec
from gpuhook.engine_log import EngineLog
from gpuhook.errors import fault, printable
from gpuhook.programs.cli import config, parameters
from gpuhook.programs.granting import Granting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_MAX_LINE = 4096

state_root = click.option(
    "--state-root",
    "state_roots",
    metavar="DIR",
    multiple=True,
    show_envvar=True,
    help="A directory in which a runtime keeps its containers' state (its --root), besides those "
    "where engines have theirs; repeatable.",
)
dry_run = click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
output = parameters.output("text", "json")
device = click.option(
    "--device",
    "devices",
    metavar="NAME",
    multiple=True,
    required=True,
    show_envvar=True,
    help="An index, UUID, PCI bus id, replica id or CDI name, as in NVIDIA_VISIBLE_DEVICES; "
    "repeatable, and comma lists are taken.",
)


def names_of(devices: Sequence[str]) -> list[str]:
    """Return the device names of a repeatable option; a usage error if there are none."""
    names = [name.strip() for value in devices for name in value.split(",")]
    names = [name for name in dict.fromkeys(names) if name]
    if not names:
        raise click.BadParameter("it names no device", param_hint="--device")
    return names


def grants() -> Granting:
    """Return how this node grants, by its settings; GH1530 if they are broken."""
    path = settings.path()
    chosen = settings.Settings()
    if os.path.exists(path):
        reason = config.problem(path)
        if reason:
            raise fault("GH1530", path=path, reason=reason)
        chosen = settings.from_document(config.load(path))
    return Granting(chosen, EngineLog("gpuhook"), _compile)


def _compile(path: str) -> None:
    compiler.compile_with(spec.parser(path), path, os.stat(path))


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
    if output == "json":
        document = {
            "schema": f"gpuhook/{verb}/v1",
            "containers": list(documents),
            "failures": list(failures),
        }
        click.echo(json.dumps(document, indent=2))
        return
    for told in documents:
        for line in _lines(told):
            click.echo(printable(line, _MAX_LINE))
        without = "" if verb == "detach" else "without "
        for note in [*(without + what for what in told["skipped"]), *told["notes"]]:
            click.echo(f"note: {printable(note, _MAX_LINE)}", err=True)
        for what in told["left"]:
            click.echo(f"left over: {printable(what, _MAX_LINE)}", err=True)


def _lines(told: dict[str, Any]) -> list[str]:
    if not told["steps"]:
        return [f"{told['container']}: nothing to do"]
    head = "would do" if told["dryRun"] else "done"
    return [f"{told['container']}: {head}", *(f"  {step}" for step in told["steps"])]
