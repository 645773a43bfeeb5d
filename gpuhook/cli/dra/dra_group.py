# SPDX-License-Identifier: Apache-2.0
"""`gpuhook dra`."""

from __future__ import annotations

import click

from gpuhook.cli.dra import dra_drain, dra_lint, dra_run, dra_status
from gpuhook.cli.options import command_sections


@click.group(cls=command_sections.Sentences)
def dra() -> None:
    """Run, show and drain the DRA drivers of this node, and check claims."""


dra.add_command(dra_lint.lint)
dra.add_command(dra_run.run)
dra.add_command(dra_status.status)
dra.add_command(dra_drain.drain)
