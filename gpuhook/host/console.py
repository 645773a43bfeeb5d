# SPDX-License-Identifier: Apache-2.0
"""What every command prints alike: documents, tables, talk.

Data goes to standard output, talk to standard error; `gpuhook --quiet` leaves out talk that is no
warning and no fault.
"""

from __future__ import annotations

import json
import os
import sys

import click

from gpuhook.errors import printable
from gpuhook.host import documents
from gpuhook.host.text_table import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

JSON, YAML, TABLE, WIDE, NAME, TEXT = "json", "yaml", "table", "wide", "name", "text"
_MAX_LINE = 4096
_YAML_WIDTH = 100


def document(value: dict[str, Any], output: str) -> None:
    """Print a document as JSON or YAML: `output` is "json" or "yaml"."""
    click.echo(text(value, output), nl=False)


def text(value: dict[str, Any], output: str) -> str:
    """Return a document as the text of JSON or YAML, with its line break at the end."""
    if output == YAML:
        return _yaml(value)
    return json.dumps(value, indent=2) + "\n"


def _yaml(value: dict[str, Any]) -> str:
    import yaml

    class Plain(yaml.SafeDumper):
        """Writes what stands in two places in both."""

        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 # PyYAML's signature
            return True

    return documents.yaml_text(value, Plain, width=_YAML_WIDTH)


def rows(
    headers: Sequence[str], lines: Sequence[Sequence[str]], *, no_headers: bool = False
) -> None:
    """Print a table."""
    click.echo(table(None if no_headers else headers, lines), nl=False)


def names(found: Iterable[str]) -> None:
    """Print a name a line, for -o name: what other commands take as their argument."""
    for name in found:
        click.echo(printable(name, _MAX_LINE))


def say(text: str) -> None:
    """Tell something on standard error, which --quiet leaves out."""
    if not is_quiet():
        click.echo(printable(text, _MAX_LINE), err=True)


def warn(text: str) -> None:
    """Tell on standard error what is wrong beside the way."""
    click.echo(f"warning: {printable(text, _MAX_LINE)}", err=True)


def is_quiet() -> bool:
    """Return whether the caller asked for no talk."""
    context = click.get_current_context(silent=True)
    return bool(context and context.find_root().params.get("quiet"))


def has_colour() -> bool:
    """Return whether standard output takes colour: a terminal, and nobody said NO_COLOR.

    Source: https://no-color.org: the variable counts if it is there and not empty.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout.isatty()
